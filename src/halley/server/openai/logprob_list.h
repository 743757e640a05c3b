// Log probabilities of a sequence's tokens, in few bytes until they are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "halley/sampling/base/token_choice.h"

namespace halley {

/// A token with its log probability, and the most probable tokens.
struct TokenDetail {
  int32_t token_id = 0;
  std::optional<TokenLogprob> logprob;  // absent: a prompt's first token
  std::vector<TokenLogprob> top_logprobs;
};

/// A list that only grows, without copies of what it has. Not thread-safe.
class LogprobList {
 public:
  /// Each token has at most `num_top` alternatives.
  explicit LogprobList(size_t num_top = 0) : stride_(num_top + 1) {}

  void add(int32_t token_id, std::optional<float> logprob, std::span<const TokenLogprob> top);
  size_t size() const { return values_.size() / stride_; }
  TokenDetail at(size_t index) const;
  size_t num_bytes() const { return values_.size() * sizeof(TokenLogprob); }

  /// The memory that a token of a long list takes.
  static constexpr size_t token_bytes(size_t num_top) {
    constexpr size_t kBlockBytes = 512, kBlockOverhead = 32;  // of std::deque and the allocator
    return (num_top + 1) * sizeof(TokenLogprob) * (kBlockBytes + kBlockOverhead) / kBlockBytes;
  }

 private:
  size_t stride_;
  // For each token itself, then `stride_ - 1` alternatives. An absent log probability is NaN, an
  // absent alternative has the id -1.
  std::deque<TokenLogprob> values_;
};

}  // namespace halley
