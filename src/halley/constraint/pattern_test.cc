#include "halley/constraint/pattern.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/testing/grammar_match.h"

namespace halley {
namespace {

TEST(Regex, IsTheWholeText) {
  const std::vector<GrammarCase> cases = {
      {"a|bc", {"a", "bc"}, {"", "ab", "xa", "ax"}},
      {"^a$|^b", {"a", "b"}, {"bc", "ab"}},
      {R"((?P<year>\d{4})-(?<month>\d\d))", {"2024-02"}, {"2024-2", "x2024-02"}},
      {R"((\+\d{1,3} )?\(\d{3}\) \d{3}-\d{4})",
       {"(555) 555-0100", "+1 (555) 555-0100"},
       {"+ (555) 555-0100"}},
      {R"([\w.+-]+@[a-z]+\.(?:com|org))", {"a.b+c@d.org"}, {"a@d.net", "a@d.comx"}},
      {".*", {"", "\"\\\xC3\xA4"}, {"a\nb"}},
      {"", {""}, {"a"}},
      {"(a?){2}", {"", "a", "aa"}, {"aaa"}},
  };
  expect_texts(cases, [](const std::string& pattern) { return regex_grammar(pattern, "regex"); });
}

TEST(Regex, HostileOnesAreReadOrRejectedSoon) {
  for (const std::string& pattern :
       {std::string("(x+x+)+y"), std::string("((((a{0,1000}){0,1000}){0,1000}){0,1000}){0,1000}"),
        std::string("(.*)*(.*)*(.*)*b"), std::string(16'000, '.')}) {
    try {
      const Grammar grammar = regex_grammar(pattern, "regex");
      Matcher matcher(grammar);
      Matcher::State state = matcher.start();
      for (int i = 0; i < 500 && state >= 0; ++i) state = matcher.next(state, 'x');
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("parts, got more"));
    }
  }
}

}  // namespace
}  // namespace halley
