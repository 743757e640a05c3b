#include "halley/client/load/stream_account.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/json/json.h"

namespace halley {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(StreamAccount, MeasuresACompletion) {
  StreamAccount account;
  EXPECT_TRUE(account.take_event(R"({"choices": [{"text": "a", "finish_reason": null}]})", 0.5));
  EXPECT_TRUE(account.take_event(R"({"choices": [{"text": "b", "finish_reason": null}]})", 0.75));
  EXPECT_TRUE(
      account.take_event(R"({"choices": [{"text": "c", "finish_reason": "length"}]})", 1.75));
  EXPECT_TRUE(account.take_event(
      R"({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}})", 2));
  EXPECT_TRUE(account.take_event("[DONE]", 2));
  EXPECT_EQ(account.error(), "");
  EXPECT_EQ(account.time_to_first_token(), 0.5);
  EXPECT_EQ(account.latency(), 1.75);
  EXPECT_THAT(account.inter_token_latencies(), ElementsAre(DoubleEq(0.25), DoubleEq(1)));
  EXPECT_EQ(account.num_prompt_tokens(), 7);
  EXPECT_EQ(account.num_output_tokens(), 4);
  EXPECT_TRUE(account.has_usage());
}

TEST(StreamAccount, AChatsRoleIsNoToken) {
  StreamAccount account;
  account.take_event(R"({"choices": [{"delta": {"role": "assistant", "content": ""}}]})", 0.1);
  account.take_event(R"({"choices": [{"delta": {"reasoning_content": "hm"}}]})", 0.5);
  account.take_event(R"({"choices": [{"delta": {"content": "a"}}]})", 0.75);
  account.take_event(R"({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]})", 1);
  account.take_event(R"({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})", 1.5);
  account.take_event("[DONE]", 1.5);
  EXPECT_EQ(account.error(), "");
  EXPECT_EQ(account.time_to_first_token(), 0.5);
  EXPECT_EQ(account.latency(), 1.5);
  EXPECT_THAT(account.inter_token_latencies(), ElementsAre(0.25, 0.25));
  EXPECT_EQ(account.num_prompt_tokens(), std::nullopt);
  EXPECT_EQ(account.num_output_tokens(), 3);
  EXPECT_FALSE(account.has_usage());
}

TEST(StreamAccount, AnAnswerWithoutTextHasItsTimeFromItsEnd) {
  StreamAccount account;
  account.take_event(R"({"choices": [{"text": "", "finish_reason": null}]})", 0.25);
  account.take_event(R"({"choices": [{"text": "", "finish_reason": "stop"}]})", 0.5);
  account.take_event("[DONE]", 0.5);
  EXPECT_EQ(account.error(), "");
  EXPECT_EQ(account.time_to_first_token(), 0.5);
  EXPECT_THAT(account.inter_token_latencies(), IsEmpty());
}

TEST(StreamAccount, StreamsThatBreakOffAreErrors) {
  StreamAccount account;
  EXPECT_THAT(account.error(), HasSubstr("expected a finish_reason"));
  account.take_event(R"({"choices": [{"text": "a"}]})", 1);
  EXPECT_THAT(account.error(), HasSubstr("expected a finish_reason"));
  account.take_event(R"({"choices": [{"text": "a", "finish_reason": "stop"}]})", 1);
  EXPECT_THAT(account.error(), HasSubstr("expected [DONE]"));
  account.take_event("[DONE]", 1);
  EXPECT_EQ(account.error(), "");
  EXPECT_FALSE(account.take_event("[DONE]", 1));
  EXPECT_THAT(account.error(), HasSubstr("expected nothing behind [DONE]"));
}

std::string error_behind(const std::string& data) {
  StreamAccount account;
  EXPECT_FALSE(account.take_event(data, 1)) << data;
  return account.error();
}

TEST(StreamAccount, RejectsWhatIsNoChunk) {
  EXPECT_THAT(error_behind("{"), HasSubstr("stream: not valid JSON"));
  EXPECT_THAT(error_behind("[]"), HasSubstr("stream: expected objects, got \"[]\""));
  EXPECT_THAT(error_behind(R"({"choices": [1]})"), HasSubstr("choices that are objects"));
  EXPECT_THAT(error_behind(std::string(40, '[') + std::string(40, ']')),
              HasSubstr("deeper than 32"));
  EXPECT_THAT(error_behind(R"({"error": {"message": "no memory", "code": 500}})"),
              HasSubstr("error of the server: \"no memory\""));
}

std::string text_event(const std::string& text, const std::string& usage) {
  return R"({"choices": [{"text": ")" + text + R"("}], "usage": )" + usage + "}";
}

TEST(StreamAccount, CountsTheTokensOfEachEventByTheGrowthOfTheUsage) {
  StreamAccount account;
  account.take_event(text_event("a", R"({"completion_tokens": 2})"), 1);
  account.take_event(text_event("", R"({"completion_tokens": 3})"), 2);  // half a character
  account.take_event(text_event("b", R"({"completion_tokens": 4})"), 3);
  account.take_event(text_event("c", R"({"completion_tokens": 4})"), 4);  // more of the same token
  account.take_event(text_event("d", R"({"completion_tokens": 5})"), 5);
  account.take_event(R"({"choices": [], "usage": {"completion_tokens": 6}})", 6);
  EXPECT_THAT(account.event_tokens(),
              ElementsAre(EventTokens{0, -1, 2}, EventTokens{1, -1, 2}, EventTokens{3, -1, 1}));
  EXPECT_EQ(account.num_output_tokens(), 6);
  EXPECT_THAT(account.precisions(), IsEmpty());
}

TEST(StreamAccount, CountsTheTokensOfEachPrecision) {
  const auto usage = [](int64_t full, int64_t low) {
    const Json precision = {{"full", full}, {"low", low}};
    return Json({{"completion_tokens", full + low},
                 {"completion_tokens_details", {{"precision", precision}}}})
        .dump();
  };
  StreamAccount account;
  account.take_event(text_event("a", usage(0, 1)), 1);
  account.take_event(text_event("b", usage(2, 2)), 2);
  account.take_event(text_event("c", usage(3, 2)), 3);
  EXPECT_THAT(account.precisions(), ElementsAre("low", "full"));
  EXPECT_THAT(account.event_tokens(), ElementsAre(EventTokens{0, 0, 1}, EventTokens{1, 1, 2},
                                                  EventTokens{1, 0, 1}, EventTokens{2, 1, 1}));
  EXPECT_EQ(account.precision_tokens(), (PrecisionTokens{{"full", 3}, {"low", 2}}));
}

TEST(StreamAccount, KnowsNoTokensOfEventsWhereTheUsageIsAtTheEnd) {
  StreamAccount account;
  account.take_event(text_event("a", "null"), 1);
  account.take_event(text_event("b", R"({"completion_tokens": 5})"), 2);
  EXPECT_THAT(account.event_tokens(), IsEmpty());
  EXPECT_EQ(account.num_output_tokens(), 5);
}

// Otherwise a server could fill the client's memory, or make counts negative.
TEST(StreamAccount, KeepsFewPrecisionsAndNoNegativeCounts) {
  StreamAccount account;
  for (int i = 1; i <= 20; ++i) {
    const std::string name = "p" + std::to_string(i);
    const Json usage = {{"completion_tokens", 100 - i},
                        {"completion_tokens_details", {{"precision", {{name, 1}}}}}};
    account.take_event(text_event("a", usage.dump()), i);
  }
  EXPECT_EQ(account.precisions().size(), 8U);
  for (const EventTokens& tokens : account.event_tokens()) EXPECT_GT(tokens.count, 0);
}

TEST(StreamAccount, TakesNoCountsOutOfRange) {
  StreamAccount account;
  account.take_event(R"({"usage": {"prompt_tokens": -1, "completion_tokens": 1e300}})", 1);
  account.take_event(R"({"usage": {"completion_tokens": 18446744073709551615}})", 1);
  EXPECT_EQ(account.num_prompt_tokens(), std::nullopt);
  EXPECT_FALSE(account.has_usage());
}

TEST(ErrorMessage, IsTheOneOfTheServer) {
  EXPECT_EQ(error_message_of(R"({"error": {"message": "too long"}})"), "\"too long\"");
  EXPECT_EQ(error_message_of(R"({"error": "too long"})"), "\"too long\"");
  EXPECT_EQ(error_message_of(R"({"message": "too long"})"), "\"too long\"");
  EXPECT_EQ(error_message_of("<html>502"), "\"<html>502\"");
  EXPECT_EQ(error_message_of("[1]"), "\"[1]\"");
  EXPECT_LT(error_message_of(std::string(5000, 'x')).size(), 300U);
}

}  // namespace
}  // namespace halley
