// Sets of Unicode characters, and grammars of their encodings: UTF-8, or inside a JSON string.
#pragma once

#include <cstdint>
#include <vector>

#include "halley/constraint/grammar.h"

namespace halley {

constexpr uint32_t kCodePointMax = 0x10FFFF;

/// Characters as disjoint ascending ranges. Surrogates are no characters.
class CharSet {
 public:
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0;
  };

  CharSet() = default;
  explicit CharSet(std::vector<Range> ranges);
  static CharSet of(uint32_t code) { return CharSet({{code, code}}); }
  static CharSet all() { return CharSet({{0, kCodePointMax}}); }

  const std::vector<Range>& ranges() const { return ranges_; }
  bool has(uint32_t code) const;
  bool is_empty() const { return ranges_.empty(); }

  CharSet united(const CharSet& other) const;
  CharSet complement() const;
  CharSet without(const CharSet& other) const;

 private:
  std::vector<Range> ranges_;
};

/// The set and its ASCII letters in the other case.
CharSet with_other_case(const CharSet& chars);

/// One character of the set as UTF-8 (RFC 3629).
ExprId utf8_char(GrammarBuilder& builder, const CharSet& chars);

/// One character of the set inside a JSON string (RFC 8259, section 7) in its shortest form: itself
/// if that is allowed, else \" \\ \b \f \n \r \t, else \u00XX with hexadecimal digits of any case.
ExprId json_char(GrammarBuilder& builder, const CharSet& chars);

/// One character of any JSON string in any form, \uXXXX and surrogate pairs included, lone
/// surrogates excluded.
ExprId any_json_char(GrammarBuilder& builder);

/// Characters that stand for themselves in a JSON string.
CharSet plain_json_chars();

}  // namespace halley
