// Tests of grammars in Lark's notation. tests/constraint compares texts with llguidance.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/lark_reader.h"
#include "halley/constraint/testing/grammar_match.h"
#include "halley/constraint/text_grammar.h"

namespace halley {
namespace {

Grammar grammar_of(const std::string& text) { return text_grammar(text, "g"); }

TEST(Lark, HasTheTextsThatTheNotationSays) {
  const std::vector<GrammarCase> cases = {
      {R"(start: "yes" | "no")", {"yes", "no"}, {"", "ye", "yesno"}},
      {"// a comment\n?start.2: a b -> pair # another\n    | \"z\"\n!a: \"x\"\n_b: \"q\"\nb: "
       "\"y\"\n",
       {"xy", "z"},
       {"x", "xyz"}},
      {"start: A+ B? C*\nA: \"a\"\nB: /b/\n_C: \"c\"\nC: _C _C", {"a", "aab", "acc"}, {"b", "ac"}},
      {R"(start: "a" ~ 2 "b" ~ 1..2 "c"{2} "d"{,1} ["e" "f"])",
       {"aabcc", "aabbccdef"},
       {"abcc", "aabccde", "aabbbcc"}},
      {R"(start: "Ab1"i "x".."z")", {"aB1x", "AB1z"}, {"ab2x", "ab1w", "ab1X"}},
      {R"(start: /a.[c-e]\/"/i /./s)", {"aXD/\"\n", "A.c/\"a"}, {"a\nd/\"x", "axd/\""}},
      {R"(start: /a*/ /b?/ "c")", {"c", "aac", "bc", "aabc"}, {"bbc", "ca"}},
      {"start: \"a\" start\n | \"b\"", {"b", "aab"}, {"a", "ba"}},
      // Ignored texts stand between lexemes, before and behind them, and in none.
      {"start: \"let\" NAME \"=\" INT\nNAME: /[a-z]/ /[a-z0-9]/*\n%import common.INT\n"
       "%import common.WS\n%ignore WS\n%ignore /#[^\\n]*/",
       {"let x1=2", " let  x =\n12 ", "letx=1", "let x # y\n= 3"},
       {"le t x=1", "let x=1 2", "let 1=1"}},
      {"%import common (CNAME, SIGNED_NUMBER)\n%import common.ESCAPED_STRING -> TEXT\n"
       "start: CNAME \"=\" (SIGNED_NUMBER | TEXT)",
       {"a_1=-2.5e3", R"(b="x\"y")", "c=.5", "d=7."},
       {"1=2", "a=\"x", "a=e3"}},
      // A rule that begins with itself is a repetition.
      {"?start: sum\n?sum: term | sum \"+\" term -> add | sum \"-\" term -> sub\n"
       "?term: atom | term \"*\" atom\n?atom: /[0-9]+/ | \"(\" sum \")\"",
       {"1", "1+2*3-(4-5)", "((1))"},
       {"1+", "*1", "(1"}},
      {"%llguidance {}\nstart: \"a\"", {"a"}, {"b"}},
      {R"(start: "\u00e9\n\"\\" "")", {"\xC3\xA9\n\"\\"}, {""}},
  };
  for (const GrammarCase& c : cases) EXPECT_TRUE(looks_like_lark(c.source)) << c.source;
  expect_texts(cases, grammar_of);
}

TEST(Lark, HasTheTerminalsOfItsOwnModule) {
  const std::vector<GrammarCase> cases = {
      {"DIGIT", {"7"}, {"77", "a"}},
      {"HEXDIGIT", {"f", "A"}, {"g"}},
      {"INT", {"007"}, {"-1", ""}},
      {"SIGNED_INT", {"+7", "-1"}, {"1.0"}},
      {"DECIMAL", {"1.", ".5", "1.5"}, {"1", "."}},
      {"FLOAT", {"1e5", "1.5E-3", ".5"}, {"1", "e5"}},
      {"SIGNED_FLOAT", {"-1e5", "+.5"}, {"-1"}},
      {"NUMBER", {"1", "1.5", ".5e1"}, {"-1", "."}},
      {"SIGNED_NUMBER", {"-1", "+1.5"}, {"--1"}},
      {"ESCAPED_STRING", {R"("a\"b\\")", "\"\""}, {"\"a", "\"\\\"", "\"a\nb\""}},
      {"LCASE_LETTER", {"a"}, {"A"}},
      {"UCASE_LETTER", {"A"}, {"a"}},
      {"LETTER", {"a", "Z"}, {"1"}},
      {"WORD", {"aZ"}, {"a1"}},
      {"CNAME", {"_a1"}, {"1a"}},
      {"WS_INLINE", {" \t"}, {"\n"}},
      {"WS", {" \n\r\t\f"}, {""}},
      {"CR", {"\r"}, {"\n"}},
      {"LF", {"\n"}, {"\r"}},
      {"NEWLINE", {"\n", "\r\n\n"}, {"\r"}},
      {"SH_COMMENT", {"# a"}, {"a", "#\n"}},
      {"CPP_COMMENT", {"// a"}, {"/ a"}},
      {"C_COMMENT", {"/* a\n * b **/"}, {"/* a", "/* */ */"}},
      {"SQL_COMMENT", {"-- a"}, {"- a"}},
  };
  expect_texts(cases, [](const std::string& name) {
    return grammar_of(str("%import common.", name, "\nstart: ", name));
  });
}

TEST(Lark, SaysWhereAMistakeIs) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"%ignore \" \"", "expected a rule \"start: ...\", which is the output, got none."},
      {"a: \"x\"", "a rule \"start: ...\""},
      {"start: a\n\n", "a definition of the rule \"a\", which is used at line 1, column 8"},
      {"start: \"a\"\nx = 1", "a regular expression, a group or a name at line 2, column 3"},
      {"start: \"a\"\nstart: \"b\"",
       "one definition of each rule, and \"start\" has one at line 2"},
      {"start: \"a", "a '\"' that ends the text at line 1, column 10, got the end."},
      {"start: /a", "a '/' that ends the regular expression at line 1, column 10"},
      {"start: /a\n/", "a '/' that ends the regular expression at line 1, column 10"},
      {"start: /a\\", "a '/' that ends the regular expression"},
      {"start: /a/x", "the flags i, s, m and u at line 1, column 11"},
      {"start: \"b\"\n  /(a/", "regular expression at line 2, column 3: expected a ')' behind"},
      {"start: /^a/", "an anchor"},
      {"start: /a(?=b)/", "a group with (?"},
      {"start: (\"a\"", "a ')' at line 1, column 12"},
      {"start: [\"a\")", "a ']' at line 1, column 12"},
      {"start: \"a\")", "another statement at line 1, column 11"},
      {"start: \"a\"*+", "one quantifier"},
      {"start: \"a\"~3..2", "counts in ascending order"},
      {"start: \"a\"~", "a count at"},
      {"start: \"a\"{2", "a '}' behind the counts"},
      {"start: \"ab\"..\"c\"", "a range of two characters at line 1, column 8"},
      {"start: \"b\"..\"a\"", "a range of ascending characters"},
      {"start: \"a\"..b", "a '\"' at line 1, column 13"},
      {"start: A\nA: b\nb: \"x\"", "no rule in a terminal at line 2, column 4"},
      {"start: a{b}\na: \"x\"\nb: \"x\"", "no template at line 1, column 8"},
      {"start: <|tool|>", "a text, a regular expression, a group or a name"},
      {"start: %json {}", "%ignore, %import or %llguidance at line 1, column 8"},
      {"%declare A\nstart: A", "%ignore, %import or %llguidance at line 1, column 1"},
      {"%llguidance {\"a\": 1}\nstart: \"a\"", "%llguidance {} without options"},
      {"%import python.NAME\nstart: NAME", "the module \"common\" at line 1, column 9"},
      {"%import common\nstart: \"a\"", "a '.' or a '('"},
      {"%import common.NAME\nstart: NAME", "a terminal of Lark's module \"common\""},
      {"%import common (INT\nstart: INT", "a ')'"},
      {"%import common.INT -> int\nstart: int", "a name in capitals"},
      {"%import common.INT -> 5\nstart: int", "a name at line"},
      {"start: a\na: b \"x\"\nb: a | \"y\"", "rules that do not begin with themselves"},
      {"start: \"a\" start", "that some finite text fulfils"},
      {"start: " + std::string(33, '(') + "\"a\"" + std::string(33, ')'), "32 nested groups"},
      {"start: \"a\" -> 5", "the name of an alias"},
  };
  expect_errors(cases, grammar_of);
}

TEST(Lark, LargeGrammarsAreReadOrRejectedSoon) {
  std::string patterns = "start: A\nA: ";
  while (patterns.size() < 60'000) patterns += "/(x+x+)+[^\\u0100-\\u0200]{0,1000}/ ";
  std::string ignored = "start: A\nA: \"a\"\n";
  while (ignored.size() < 60'000) ignored += "%ignore /x*/\n";
  for (const std::string& grammar : {patterns, ignored}) {
    try {
      Matcher matcher(text_grammar(grammar, "g"));
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("g: expected a grammar of at most"));
    }
  }
}

}  // namespace
}  // namespace halley
