// Regular expressions of JSON Schema (ECMA-262 with the flag u) as grammars: the part of the
// language that describes regular languages without looking around.
//
// Done: characters, . | ( ) (?: ) (?<name> ), classes with ranges and ^, * + ? {n} {n,} {n,m} and
// their lazy forms (the same language), \d \D \w \W \s \S, \t \n \v \f \r \0, \cX \xHH \uHHHH
// \u{H...}, escaped signs; ^ at the beginning and $ at the end of the whole expression or of its
// alternatives. Rejected by name: look-around, back-references, \b \B, \p, flags, anchors
// elsewhere.
#pragma once

#include <string>
#include <string_view>

#include "halley/constraint/grammar.h"

namespace halley {

/// How a character of the text is written in the output.
enum class TextForm { kUtf8, kJsonString };

struct PatternLimits {
  size_t bytes_max = 4096;
  int depth_max = 32;  // of groups
};

/// Texts that the pattern is found in: one that is not anchored may have anything before and behind
/// it, as JSON Schema says. Throws InputError for what is no regular expression, UnsupportedError
/// for what is not done; `where` begins the message.
ExprId pattern_texts(GrammarBuilder& builder, std::string_view pattern, TextForm form,
                     const std::string& where);

}  // namespace halley
