#include "halley/client/load/usage.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

Usage usage_of(const std::string& text) { return read_usage(parse_json(text, "a test")); }

PrecisionTokens precisions_of(const std::string& text) {
  return usage_of(R"({"completion_tokens_details": {"precision": )" + text + "}}").precision_tokens;
}

TEST(Usage, HasCountsAndPrecisions) {
  const Usage usage = usage_of(R"({"prompt_tokens": 7, "completion_tokens": 20,
      "completion_tokens_details": {"reasoning_tokens": 3, "precision": {"low": 5, "full": 15}}})");
  EXPECT_EQ(usage.prompt_tokens, 7);
  EXPECT_EQ(usage.completion_tokens, 20);
  EXPECT_THAT(usage.precision_tokens, ElementsAre(Pair("full", 15), Pair("low", 5)));
}

TEST(Usage, LacksWhatTheServerDoesNotTell) {
  for (const char* text : {"null", "[]", "{}", R"({"completion_tokens_details": null})",
                           R"({"completion_tokens_details": {"precision": "full"}})",
                           R"({"completion_tokens_details": {"precision": {}}})"}) {
    const Usage usage = usage_of(text);
    EXPECT_EQ(usage.prompt_tokens, std::nullopt) << text;
    EXPECT_EQ(usage.completion_tokens, std::nullopt) << text;
    EXPECT_THAT(usage.precision_tokens, IsEmpty()) << text;
  }
}

TEST(Usage, TakesNoCountOutOfRange) {
  for (const char* count : {"-1", "4294967297", "18446744073709551615", "1e300", "2.5", "\"2\""}) {
    const std::string text = count;
    EXPECT_EQ(usage_of("{\"prompt_tokens\": " + text + "}").prompt_tokens, std::nullopt) << text;
    EXPECT_THAT(precisions_of("{\"full\": " + text + "}"), IsEmpty()) << text;
  }
  EXPECT_EQ(usage_of(R"({"prompt_tokens": 4294967296})").prompt_tokens, 4294967296);
}

TEST(Usage, TakesFewPrecisionsWithPlainNames) {
  EXPECT_THAT(precisions_of(R"({"": 1, "a b": 1, "\u001b[0m": 1, "f16_e4m3-2.5": 1})"),
              ElementsAre(Pair("f16_e4m3-2.5", 1)));
  EXPECT_THAT(precisions_of("{\"" + std::string(33, 'a') + "\": 1}"), IsEmpty());
  std::string many = R"({"a": 1)";
  for (int i = 0; i < 100; ++i) many += ", \"p" + std::to_string(i) + "\": 1";
  EXPECT_THAT(precisions_of(many + "}"), SizeIs(8));
}

}  // namespace
}  // namespace halley
