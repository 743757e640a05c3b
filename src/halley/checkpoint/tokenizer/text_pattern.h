// The pattern of Split and Replace: a plain text or a regular expression.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/tokenizer/pcre.h"
#include "halley/json/json.h"

namespace halley {

class TextPattern {
 public:
  /// From {"String": ...} or {"Regex": ...} (Oniguruma syntax). Throws InputError or
  /// UnsupportedError.
  static TextPattern parse(const Json& value, const std::string& where);

  /// All matches from left to right, none inside another.
  std::vector<TextRange> find_all(std::string_view text) const;

  /// The plain text; empty where this is a regular expression.
  const std::string& plain_text() const { return plain_text_; }

 private:
  std::string plain_text_;
  std::optional<PcrePattern> regex_;
};

}  // namespace halley
