// Requests that generate nothing: what they give of their prompt's rows instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace halley {

struct Pooling {
  enum class Kind : uint8_t {
    kLast,         // the hidden state of the last token, behind the final norm
    kMean,         // the mean of all tokens' ones
    kTokenLogits,  // logits of token_ids behind the last token
  };
  Kind kind = Kind::kLast;
  std::vector<int32_t> token_ids = {};  // of kTokenLogits; 1 to kTokensMax

  static constexpr size_t kTokensMax = 64;

  /// Whether the model must give hidden states.
  bool needs_hidden_states() const { return kind != Kind::kTokenLogits; }
  /// Whether no row may be skipped for what the prefix cache has.
  bool needs_all_rows() const { return kind == Kind::kMean; }
};

}  // namespace halley
