// What one token is as a text, for log probabilities.
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

  /// As inside of a text: with the space that a token may begin with, special tokens written out,
  /// U+FFFD for bytes that are no character.
  std::string text_of(int32_t id) const;

 private:
  const Tokenizer& tokenizer_;
  // A token of plain letters: decoders strip the space of the first token of a text.
  std::optional<int32_t> anchor_;
  std::string anchor_text_;
};

/// Whether `text` has U+FFFD: its bytes are then not those of the token.
bool has_replacement(const std::string& text);

}  // namespace halley
