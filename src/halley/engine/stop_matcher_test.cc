#include "halley/engine/stop_matcher.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"

namespace halley {
namespace {

TEST(StopMatcher, HoldsBackWhatMayBecomeAStopString) {
  StopMatcher matcher({"</end>"}, /*includes_stop=*/false);
  EXPECT_EQ(matcher.push("ab <", true).text, "ab ");
  EXPECT_EQ(matcher.push("/e", true).text, "");
  EXPECT_EQ(matcher.push("</en", true).text, "</e");
  const StopMatcher::Piece piece = matcher.push("d> never seen", true);
  EXPECT_EQ(piece.text, "");
  EXPECT_EQ(piece.stop_index, 0u);
}

TEST(StopMatcher, GivesHeldTextBackAtTheEnd) {
  StopMatcher matcher({"stop"}, false);
  EXPECT_EQ(matcher.push("a st", true).text, "a ");
  EXPECT_EQ(matcher.finish(), "st");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, IncludesTheStopStringOnDemand) {
  StopMatcher matcher({"b"}, /*includes_stop=*/true);
  EXPECT_EQ(matcher.push("abc", true).text, "ab");
}

TEST(StopMatcher, TakesTheFirstToEndAndOfThoseTheLongest) {
  EXPECT_EQ(StopMatcher({"abcd", "c"}, false).push("abcd", true).text, "ab");
  StopMatcher longest({"c", "bc", "bc"}, false);
  const StopMatcher::Piece piece = longest.push("abcd", true);
  EXPECT_EQ(piece.text, "a");
  EXPECT_EQ(piece.stop_index, 1u);
}

TEST(StopMatcher, PassesOverStopStringsThatDoNotCount) {
  StopMatcher matcher({"aa"}, false);
  EXPECT_EQ(matcher.push("xaa", false).text, "xa");
  const StopMatcher::Piece piece = matcher.push("a", true);  // completes one with the last a
  EXPECT_TRUE(piece.stop_index);
  EXPECT_EQ(piece.text, "");
}

TEST(StopMatcher, FallsBackToShorterStopStringsInsideALongerOne) {
  StopMatcher inside({"abcabd", "bca"}, false);
  EXPECT_EQ(inside.push("xabca", true).text, "xa");
  StopMatcher between({"aab", "abc", "\xc3\xa4"}, false);
  EXPECT_EQ(between.push("aaa", true).text, "a");
  const StopMatcher::Piece piece = between.push("\xc3\xa4", true);
  EXPECT_EQ(piece.text, "aa");
  EXPECT_EQ(piece.stop_index, 2u);
}

// Text of two letters against all stop strings at once is where matches overlap most.
TEST(StopMatcher, FindsWhatAPlainSearchFindsHoweverTheTextIsCut) {
  std::mt19937_64 random(1);
  const auto word = [&](size_t length_max) {
    std::string text(1 + random() % length_max, 'a');
    for (char& c : text) c = random() % 2 == 0 ? 'a' : 'b';
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::string text = word(60);
    std::vector<std::string> stops(1 + random() % (round % 10 == 0 ? 64 : 4));
    for (std::string& stop : stops) stop = word(8);
    SCOPED_TRACE(str("text ", text, ", stops ", stops));
    size_t end_min = std::string::npos, length = 0;
    for (const std::string& stop : stops) {
      const size_t begin = text.find(stop);
      if (begin == std::string::npos) continue;
      const size_t end = begin + stop.size();
      if (end < end_min || (end == end_min && stop.size() > length)) {
        end_min = end;
        length = stop.size();
      }
    }
    const bool is_found = end_min != std::string::npos;
    StopMatcher matcher(stops, false);
    std::string actual;
    bool was_found = false;
    for (size_t i = 0; i < text.size() && !was_found;) {
      const size_t count = 1 + random() % 5;
      const StopMatcher::Piece piece = matcher.push(text.substr(i, count), true);
      actual += piece.text;
      was_found = piece.stop_index.has_value();
      i += count;
    }
    if (!was_found) actual += matcher.finish();
    ASSERT_EQ(was_found, is_found);
    ASSERT_EQ(actual, is_found ? text.substr(0, end_min - length) : text);
  }
}

}  // namespace
}  // namespace halley
