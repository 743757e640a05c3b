// Converts regular expressions (ECMA-262 with the flag u, as JSON Schema has them) into grammars,
// without look-behind and back-references.
//
// Supported: characters, . | ( ) (?: ) (?<name> ) (?P<name> ), classes with ranges and ^, * + ? {n}
// {n,} {n,m} and their lazy forms (the same language), \d \D \w \W \s \S, \t \n \v \f \r \0, \cX
// \xHH \uHHHH \u{H...}, escaped signs; ^ at the beginning and $ at the end of the whole expression
// or of its alternatives; look-ahead, (?= ) and (?! ), at the beginning of an anchored expression.
// Rejected by name: other look-around, back-references, \b \B, \p, flags, anchors elsewhere.
#pragma once

#include <string>
#include <string_view>

#include "halley/constraint/grammar.h"

namespace halley {

/// The encoding of the text's characters in the output.
enum class TextForm { kUtf8, kJsonString };

/// The meaning of a pattern without anchors.
enum class PatternMatch {
  kFound,  // any text may stand before and behind it, as in JSON Schema
  kWhole,  // it is the whole text
  kBegin,  // any text may stand behind it
};

struct PatternLimits {
  size_t bytes_max = size_t{16} << 10;
  int depth_max = 32;  // nesting of groups
};

/// Characters of a pattern's texts; kUnbounded where there is no limit.
struct CharCounts {
  int32_t min = 0;
  int32_t max = 0;
};

/// Texts that the pattern matches. Throws InputError for an invalid regular expression,
/// UnsupportedError for an unsupported one; `where` begins the message. Sets `counts`, if any, to
/// the fewest and most characters.
ExprId pattern_texts(GrammarBuilder& builder, std::string_view pattern, TextForm form,
                     const std::string& where, PatternMatch match = PatternMatch::kFound,
                     CharCounts* counts = nullptr);

struct PatternFlags {
  bool ignores_case = false;  // of ASCII letters
  bool dot_is_any_char = false;
};

/// A pattern as a part of a grammar in UTF-8: its texts without the empty one, and whether that is
/// one of them. It has no anchors and no look-ahead.
struct PatternPart {
  ExprId nonempty = 0;
  bool is_nullable = false;
};
PatternPart pattern_part(GrammarBuilder& builder, std::string_view pattern,
                         const PatternFlags& flags, const std::string& where);

/// The grammar of a text that is wholly one of these, in UTF-8.
Grammar regex_grammar(std::string_view pattern, const std::string& where);

}  // namespace halley
