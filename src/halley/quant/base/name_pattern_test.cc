#include "halley/quant/base/name_pattern.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kName = "model.layers.10.mlp.down_proj";

bool matches(const std::string& pattern, const std::string& name = kName) {
  return NamePattern::parse(pattern, "here").matches(name);
}

TEST(NamePattern, ExactNamesAreTheWholeName) {
  EXPECT_TRUE(matches(kName));
  EXPECT_FALSE(matches("model.layers.10.mlp.down_pro"));
  EXPECT_FALSE(matches("down_proj"));
}

TEST(NamePattern, RegexesMatchFromTheBeginningAndNeedNotReachTheEnd) {
  EXPECT_TRUE(matches("re:model\\.layers\\.1"));
  EXPECT_TRUE(matches("re:.*down_proj$"));
  EXPECT_TRUE(matches("re:.*\\.(?:1[0-5])\\..*"));
  EXPECT_FALSE(matches("re:layers"));
  EXPECT_FALSE(matches("re:.*up_proj"));
}

TEST(NamePattern, GlobsMatchTheWholeNameAndQuoteEverythingElse) {
  EXPECT_TRUE(matches("*.mlp.*"));
  EXPECT_TRUE(matches("model.layers.1?.mlp.down_proj"));
  EXPECT_FALSE(matches("*.mlp"));
  EXPECT_FALSE(matches("model.layers.?.mlp.down_proj"));
  EXPECT_FALSE(matches("model-layers*"));
  EXPECT_TRUE(matches("a+(b)[*", "a+(b)[c"));
  EXPECT_TRUE(matches("gro\xC3\x9F*", "gro\xC3\x9F.x"));
}

TEST(NamePattern, KeepsTheTextAsWritten) {
  EXPECT_EQ(NamePattern::parse("re:a.*", "here").text(), "re:a.*");
  EXPECT_EQ(NamePattern::regex("a.*", "here").text(), "a.*");
}

TEST(NamePattern, RejectsExpressionsThatDoNotCompile) {
  EXPECT_THAT([] { NamePattern::parse("re:(a", "config.json: field 'ignore'"); },
              ThrowsMessage<InputError>(
                  "config.json: field 'ignore': expected a regular expression, got \"re:(a\": "
                  "missing closing parenthesis at byte 2. Correct it."));
  EXPECT_THAT(
      [] { NamePattern::regex(std::string(5000, 'a'), "here"); },
      ThrowsMessage<InputError>(
          "here: expected a pattern of at most 4096 bytes, got 5000. Write a shorter one."));
}

TEST(NamePattern, RejectsExpressionsThatDoNotEnd) {
  const NamePattern pattern = NamePattern::regex("(?:a+)+[xyz]", "here");
  EXPECT_THAT([&] { pattern.matches(std::string(64, 'a') + "c"); },
              ThrowsMessage<InputError>(HasSubstr("expected a pattern that is decided in 100000 "
                                                  "steps, got \"(?:a+)+[xyz]\" on \"aaaa")));
}

}  // namespace
}  // namespace halley
