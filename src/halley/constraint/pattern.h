// Converts regular expressions of JSON Schema (ECMA-262 with the flag u) into grammars, without
// look-around and back-references.
//
// Supported: characters, . | ( ) (?: ) (?<name> ), classes with ranges and ^, * + ? {n} {n,} {n,m}
// and their lazy forms (the same language), \d \D \w \W \s \S, \t \n \v \f \r \0, \cX \xHH \uHHHH
// \u{H...}, escaped signs; ^ at the beginning and $ at the end of the whole expression or of its
// alternatives. Rejected by name: look-around, back-references, \b \B, \p, flags, anchors
// elsewhere.
#pragma once

#include <string>
#include <string_view>

#include "halley/constraint/grammar.h"

namespace halley {

/// The encoding of the text's characters in the output.
enum class TextForm { kUtf8, kJsonString };

struct PatternLimits {
  size_t bytes_max = 4096;
  int depth_max = 32;  // nesting of groups
};

/// The texts that contain a match: a pattern without anchors may have any text before and after it,
/// as in JSON Schema. Throws InputError for an invalid regular expression, UnsupportedError for an
/// unsupported one; `where` begins the message.
ExprId pattern_texts(GrammarBuilder& builder, std::string_view pattern, TextForm form,
                     const std::string& where);

}  // namespace halley
