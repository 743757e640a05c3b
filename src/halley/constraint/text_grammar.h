// Grammars that people write as text, as grammars of the output: those of Lark (lark_reader.h), or
// GBNF, the notation of llama.cpp, which vLLM and SGLang read too. The first rule tells which:
// "name: ..." is Lark's, "name ::= ..." GBNF's.
//
//   root   ::= "yes" | "no" | list    # a comment
//   list   ::= "[" item ("," item)* "]"
//   item   ::= [a-z0-9_]+ | [^\x00-\x1F"]{1,8} | . | "\u00e9"
//
// Supported: rules `name ::= ...` in any order, of which `root` is the output; texts and classes
// with the escapes \n \r \t \\ \" \' \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH, each a character; `.`, any
// character; groups; * + ? {n} {n,} {,m} {n,m}; line ends anywhere. Rejected: rules that begin with
// themselves through others, two quantifiers in a row, look-ahead, tokens (<...>), and what nobody
// defines. A rule may begin with itself: a ::= a x | b.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "halley/constraint/grammar.h"

namespace halley {

struct TextGrammarLimits {
  size_t bytes_max = size_t{64} << 10;
  size_t rules_max = 512;
  int depth_max = 32;  // nesting of groups
};

/// Throws InputError for untrusted `text` that is no such grammar, as
/// "<where>: expected a ')' at line 3, column 7, got ...".
Grammar text_grammar(std::string_view text, const std::string& where,
                     const TextGrammarLimits& limits = {});

}  // namespace halley
