#include "halley/constraint/text_grammar.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/testing/grammar_match.h"

namespace halley {
namespace {

Grammar grammar_of(const std::string& text) { return text_grammar(text, "g"); }

TEST(TextGrammar, HasTheTextsThatTheNotationSays) {
  const std::vector<GrammarCase> cases = {
      {R"(root ::= "yes" | "no")", {"yes", "no"}, {"", "ye", "yesno", "y"}},
      {"root::=a b\na::=\"x\"\nb::=\"y\"", {"xy"}, {"x", "y", "yx"}},
      {"root ::= \"a\" # a comment | \"b\"\n\n  | \"c\"\n", {"a", "c"}, {"b"}},
      {R"(root ::= [a-c]+ [^a-c\n] .)",
       {"abd!", "ac\xC3\xA4\xF0\x9F\x98\x80"},
       {"d!", "ab\n!", "abd"}},
      {R"(root ::= [\]\-^x-]{2})", {"]-", "^x"}, {"]", "]]]", "a-"}},
      {R"(root ::= "\x41\u00e9\U0001F600\n\t\"\\")", {"A\xC3\xA9\xF0\x9F\x98\x80\n\t\"\\"}, {"A"}},
      {R"(root ::= "a"{2} "b"{1,} "c"{,2} "d"{0,1} "e"{0})",
       {"aab", "aabbccd"},
       {"ab", "aabccc", "aabe"}},
      {R"(root ::= ("a" | "b" "c")* "d"?)", {"", "a", "bcad", "d"}, {"b", "da", "dd"}},
      // The parts of a repetition and of a sequence may be empty.
      {R"(root ::= ("a"? "b"?)* "c"?)", {"", "a", "b", "abba", "c", "bac"}, {"ca"}},
      {R"(root ::= ("a"?){2,3})", {"", "a", "aa", "aaa"}, {"aaaa"}},
      {"root ::= x* \"!\"\nx ::= y y\ny ::= \"a\" |", {"!", "a!", "aaaa!"}, {"a"}},
      {R"(root ::= "" | ())", {""}, {"a"}},
      // Recursion, to the right and in the middle.
      {"root ::= \"(\" root \")\" | \"x\"", {"x", "(x)", "(((x)))"}, {"((x)", "()"}},
      {"root ::= item list?\nlist ::= \",\" item list?\nitem ::= [0-9]+",
       {"1", "1,22,3"},
       {"1,", ",1"}},
      {"root ::= a\na ::= \"z\" a | \"\"", {"", "zzz"}, {"y"}},
      // A rule that begins with itself is a repetition.
      {"root ::= root \"+\" t | root \"-\" t | t\nt ::= [0-9] | \"(\" root \")\"",
       {"1", "1+2-3", "(1-2)+3"},
       {"", "1+", "+1", "1(2)"}},
      // A branch without end is never entered.
      {"root ::= \"a\" | \"b\" loop\nloop ::= \"c\" loop", {"a"}, {"b", "bc"}},
  };
  expect_texts(cases, grammar_of);
}

TEST(TextGrammar, ReadsAGrammarOfJson) {
  const Grammar grammar = text_grammar(R"(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)",
                                       "grammar");
  EXPECT_TRUE(matches(grammar, R"({"a": [1, -2.5e3, {}], "b": "\u00e9\n", "c": null})"));
  EXPECT_FALSE(matches(grammar, R"({"a": 01})"));
  EXPECT_FALSE(matches(grammar, R"({"a":  1})"));
}

TEST(TextGrammar, SaysWhereAMistakeIs) {
  const std::string names = [] {
    std::string text = "root ::= \"a\"\n";
    for (int i = 0; i < 512; ++i) text += str("r", i, " ::= \"a\"\n");
    return text;
  }();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "g: expected a rule \"root ::= ...\", which is the output, got none."},
      {"a ::= \"x\"", "a rule \"root ::= ...\""},
      {"root", "a rule, \"name ::= ...\", at line 1, column 1, got \"root\"."},
      {"root = \"a\"", "at line 1, column 1"},
      {"root ::= \"a\"\nx", "a definition of the rule \"x\", which is used at line 2, column 1"},
      {"root ::= \"a\"\n\n  \"b", "a '\"' that ends the text at line 3, column 5, got the end."},
      {"root ::= [a", "a ']' that ends the class at line 1, column 12"},
      {"root ::= [b-a]", "a range of ascending characters at line 1, column 11"},
      {"root ::= []", "at least one character at line 1, column 10"},
      {"root ::= (\"a\"", "a ')' at line 1, column 14"},
      {"root ::= \"a\")", "a part of a rule or another rule at line 1, column 13"},
      {"root ::= *", "a text, a class, a group or the name of a rule at line 1, column 10"},
      {"root ::= \"a\"*?", "one quantifier"},
      {"root ::= \"a\"{2,1}", "n <= m"},
      {"root ::= \"a\"{}", "a count at line 1, column 14"},
      {"root ::= \"a\"{,}", "a count at"},
      {"root ::= \"a\"{9999999999}", "a count of at most 1000000"},
      {"root ::= \"\\q\"", "an escape: "},
      {"root ::= \"\\xZZ\"", "2 hexadecimal digits at line 1, column 11"},
      {"root ::= \"\\ud800\"", "a Unicode character"},
      {"root ::= \"\\U00110000\"", "a Unicode character"},
      {"root ::= \"\xFF\"", "expected valid UTF-8"},
      {"root ::= \"a\"\nroot ::= \"b\"", "one definition of each rule, and \"root\" has one"},
      {"root ::= root \"a\"", "rules that do not begin with themselves"},
      {"root ::= a | \"b\"\na ::= root \"a\"", "rules that do not begin with themselves"},
      {"root ::= root | \"b\"", "rules that do not begin with themselves"},
      {"root ::= a\na ::= \"\"* b\nb ::= (\"x\"? a)+", "rules that do not begin with themselves"},
      {"root ::= \"a\" root", "that some finite text fulfils"},
      {std::string(70'000, ' '), "at most 65536 bytes, got 70000."},
      {"root ::= " + std::string(33, '(') + "\"a\"" + std::string(33, ')'), "32 nested groups"},
      {names, "at most 512 rules"},
  };
  expect_errors(cases, grammar_of);
}

TEST(TextGrammar, LargeGrammarsAreReadOrRejectedSoon) {
  // A chain in which each pass of an analysis learns of one rule, with as much text as fits.
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 510; ++i) {
    chain += str("r", i, " ::= ", i < 509 ? str("r", i + 1) : std::string("\"\""));
    for (int k = 0; k < 25; ++k) chain += " \"\"?";
    chain += '\n';
  }
  EXPECT_TRUE(matches(text_grammar(chain, "g"), ""));
  std::string counts = "root ::= ";
  for (int i = 0; i < 1000; ++i) counts += "([a-z]{0,1000}){0,1000} ";
  EXPECT_NO_THROW(text_grammar(counts, "g"));
}

}  // namespace
}  // namespace halley
