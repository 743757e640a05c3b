#include "halley/checkpoint/tokenizer/pcre.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;

constexpr TimeLimit kShort = {.seconds = 0.05, .seconds_per_byte = 0};

void expect_late(const std::string& pattern, size_t num_letters) {
  const PcrePattern compiled(pattern, "here");
  try {
    compiled.find_all(std::string(num_letters, 'a'), kShort);
    FAIL() << "found: " << pattern;
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("here: the pattern needs too much time"));
  }
}

std::vector<std::string> found_in(const std::string& pattern, const std::string& text) {
  std::vector<std::string> matches;
  for (const TextRange& match : PcrePattern(pattern, "here").find_all(text)) {
    matches.push_back(text.substr(match.begin, match.end - match.begin));
  }
  return matches;
}

// No start needs many steps, all starts together do.
TEST(PcrePattern, StopsASearchThatIsSlowAtEveryStart) {
  expect_late("(?:a|b)*c|(?!a)", 100'000);
  expect_late("(a|b|ab)*(?=c)|(?!a)", 100'000);
}

// libonig, which counts no step of such loops, has no limit that ends this.
TEST(PcrePattern, StopsOneMatchWhoseStepsScanTheText) { expect_late("(?:(?=a*+)a)*+", 200'000); }

TEST(PcrePattern, StopsAMatchOfTooManySteps) {
  try {
    PcrePattern("(?:a|aa)+[bc]", "here").find_all(std::string(5000, 'a'));
    FAIL() << "found";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("(match limit exceeded). Use a simpler pattern"));
  }
}

TEST(PcrePattern, FindsAMatchBehindTheFirstBudgetOfSteps) {
  const std::string run(300'000, 'a');
  EXPECT_EQ(found_in("(?:a|b)*c", run + "c"), std::vector<std::string>{run + "c"});
}

TEST(PcrePattern, FindsMatchesFarBehindTheStartOfASearch) {
  for (const size_t num_chars : {0, 1, 15, 16, 17, 33, 1000}) {
    for (const std::string_view filler : {"x", "\xC3\xA4", "\xF0\x9F\x98\x80"}) {
      std::string text;
      for (size_t i = 0; i < num_chars; ++i) text += filler;
      EXPECT_EQ(found_in("ab+", text + "abb" + text + "ab" + text),
                (std::vector<std::string>{"abb", "ab"}))
          << num_chars << " of " << filler;
      EXPECT_EQ(found_in("(?<!a)b|$", text + "ab"), std::vector<std::string>{""}) << num_chars;
    }
  }
}

TEST(PcrePattern, RejectsAPatternThatIsTooLargeToTime) {
  try {
    PcrePattern(std::string(12'000, 'a'), "here");
    FAIL() << "compiled";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("here: expected a regular expression, got one that PCRE2 "
                                        "rejects: regular expression is too large"));
  }
}

}  // namespace
}  // namespace halley
