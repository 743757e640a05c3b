// The text of a single token, for log probabilities.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "halley/checkpoint/tokenizer/tokenizer.h"

namespace halley {

/// Immutable; any thread. The tokenizer must outlive it.
class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer& tokenizer);

  /// The token's text inside of a longer text: with its leading space, special tokens written out,
  /// U+FFFD for invalid UTF-8.
  std::string text_of(int32_t id) const;

 private:
  const Tokenizer& tokenizer_;
  // A token of plain letters: decoders strip the space of the first token of a text.
  std::optional<int32_t> anchor_;
  std::string anchor_text_;
};

/// Whether `text` has U+FFFD, and so differs from the token's bytes.
bool has_replacement(const std::string& text);

}  // namespace halley
