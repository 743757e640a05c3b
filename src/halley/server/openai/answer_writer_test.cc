#include "halley/server/openai/answer_writer.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/engine/testing/fake_tokenizer.h"
#include "halley/server/openai/request_parser.h"
#include "halley/server/openai/sequence_output.h"

namespace halley {
namespace {

const FakeTokenizer& tokenizer() {
  static const FakeTokenizer kTokenizer({"<|eos|>", "a", " b", "\xC3\xA9", "\xC3", "\"", "\n"});
  return kTokenizer;
}

const TokenTexts& texts() {
  static const TokenTexts kTexts(tokenizer());
  return kTexts;
}

AnswerHead head_of(bool is_chat) {
  return {.is_chat = is_chat, .id = "cmpl-1", .created_s = 5, .model = "m"};
}

LogprobList list_of(size_t num_tokens, bool is_prompt) {
  LogprobList list(2);
  for (size_t i = 0; i < num_tokens; ++i) {
    const auto id = static_cast<int32_t>(i % 7);
    const float logprob = -0.25F * static_cast<float>(i + 1);
    const std::vector<TokenLogprob> top = {{id, logprob}, {(id + 3) % 7, logprob / 3}};
    if (is_prompt && i == 0) {
      list.add(id, std::nullopt, {});
    } else {
      list.add(id, logprob, top);
    }
  }
  return list;
}

std::string repeat(const std::string& text, size_t num) {
  std::string all;
  for (size_t i = 0; i < num; ++i) all += text;
  return all;
}

// Choices with all that a choice can have; long ones have texts of several slices.
WholeChoice choice_of(size_t index, bool is_chat, bool is_long) {
  WholeChoice choice;
  ChoiceDelta& delta = choice.delta;
  delta.text = repeat("x\xE2\x82\xAC\xC3\xA9\n\"", is_long ? 3000 : index);
  delta.finish_reason = index % 2 == 0 ? "stop" : "length";
  if (index % 2 == 0) delta.stop_reason = "\"logprobs\":null";
  if (is_chat && index == 2) {
    for (const char* name : {"f", "g"}) {
      delta.calls.push_back(
          {.index = 0, .call = {.id = "call_1", .name = name, .arguments = "{}"}});
    }
    delta.calls.back().call.arguments = repeat("{\"\xC3\xA9\"}", is_long ? 2000 : 1);
  }
  if (index > 0) choice.logprobs = list_of(is_long ? 500 : 3, /*is_prompt=*/false);
  if (!is_chat && index == 2) choice.prompt_logprobs = list_of(4, /*is_prompt=*/true);
  return choice;
}

struct Written {
  std::vector<std::string> pieces;
  std::string text;
};

Written write_all(bool is_chat, bool is_long, size_t num_bytes) {
  AnswerWriter writer({.head = head_of(is_chat),
                       .usage = {3, 2, 4},
                       .num_choices = 4,
                       .take_choice = [&](size_t i) { return choice_of(i, is_chat, is_long); }},
                      texts());
  Written written;
  for (bool has_more = true; has_more;) {
    std::string piece;
    has_more = writer.write(num_bytes, piece);
    written.text += piece;
    written.pieces.push_back(std::move(piece));
  }
  return written;
}

TEST(AnswerWriter, HasTheMembersOfOpenAi) {
  AnswerWriter writer({.head = head_of(/*is_chat=*/false),
                       .usage = {3, 2, 4},
                       .num_choices = 1,
                       .take_choice =
                           [](size_t) {
                             WholeChoice choice;
                             choice.delta.text = "x";
                             choice.delta.finish_reason = "stop";
                             return choice;
                           }},
                      texts());
  std::string text;
  EXPECT_FALSE(writer.write(1 << 20, text));
  EXPECT_EQ(text,
            R"({"id":"cmpl-1","object":"text_completion","created":5,"model":"m","choices":)"
            R"([{"index":0,"text":"x","logprobs":null,"finish_reason":"stop","stop_reason":null}],)"
            R"("usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,)"
            R"("prompt_tokens_details":{"cached_tokens":2}}})");
}

TEST(AnswerWriter, WritesWhatTheChoicesHave) {
  for (const bool is_chat : {false, true}) {
    const OrderedJson answer = OrderedJson::parse(write_all(is_chat, /*is_long=*/true, 1000).text);
    ASSERT_EQ(answer["choices"].size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      const WholeChoice expected = choice_of(i, is_chat, /*is_long=*/true);
      const OrderedJson& choice = answer["choices"][i];
      EXPECT_EQ(choice["index"], i);
      EXPECT_EQ(is_chat ? choice["message"]["content"] : choice["text"], expected.delta.text);
      EXPECT_EQ(choice["finish_reason"], expected.delta.finish_reason);
      EXPECT_EQ(choice["logprobs"].is_null(), i == 0);
    }
    if (is_chat) {
      const OrderedJson& calls = answer["choices"][2]["message"]["tool_calls"];
      ASSERT_EQ(calls.size(), 2u);
      EXPECT_EQ(calls[1]["function"]["name"], "g");
      EXPECT_EQ(calls[1]["function"]["arguments"], repeat("{\"\xC3\xA9\"}", 2000));
      EXPECT_EQ(answer["choices"][1]["logprobs"]["content"].size(), 500u);
    } else {
      const OrderedJson& logprobs = answer["choices"][2]["logprobs"];
      for (const char* name : {"text_offset", "token_logprobs", "tokens", "top_logprobs"}) {
        EXPECT_EQ(logprobs[name].size(), 504u) << name;
      }
      EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
      EXPECT_EQ(logprobs["token_logprobs"][4], -0.25);
    }
  }
}

TEST(AnswerWriter, HasTheSameBytesInPiecesOfAnySize) {
  for (const bool is_chat : {false, true}) {
    for (const bool is_long : {false, true}) {
      const std::string expected = write_all(is_chat, is_long, size_t{1} << 30).text;
      for (const size_t num_bytes : {1, 7, 4095, 4096, 65536}) {
        EXPECT_EQ(write_all(is_chat, is_long, num_bytes).text, expected) << num_bytes;
      }
    }
  }
}

TEST(AnswerWriter, BoundsItsPieces) {
  constexpr size_t kEscapedMax = 6;  // bytes of JSON for a byte of text
  for (const bool is_chat : {false, true}) {
    const Written written = write_all(is_chat, /*is_long=*/true, 1000);
    ASSERT_GT(written.pieces.size(), 20u);
    for (size_t i = 0; i < written.pieces.size(); ++i) {
      EXPECT_LE(written.pieces[i].size(), 1000 + kEscapedMax * AnswerWriter::kSliceBytes);
      const bool is_last = i + 1 == written.pieces.size();
      EXPECT_TRUE(is_last || written.pieces[i].size() >= 1000) << i;
    }
  }
}

TEST(AnswerWriter, TakesAChoiceWhenItsTurnComes) {
  std::vector<size_t> taken;
  AnswerWriter writer({.head = head_of(/*is_chat=*/false),
                       .usage = {},
                       .num_choices = 3,
                       .take_choice =
                           [&](size_t index) {
                             taken.push_back(index);
                             WholeChoice choice;
                             choice.delta.text = std::string(100'000, 'x');
                             return choice;
                           }},
                      texts());
  std::string out;
  EXPECT_TRUE(writer.write(50'000, out));
  EXPECT_EQ(taken, std::vector<size_t>({0}));
  EXPECT_TRUE(writer.write(150'000, out));
  EXPECT_EQ(taken, std::vector<size_t>({0, 1}));
  EXPECT_FALSE(writer.write(500'000, out));
  EXPECT_EQ(taken, std::vector<size_t>({0, 1, 2}));
}

TEST(LogprobList, GivesBackWhatItTook) {
  LogprobList list(3);
  const std::vector<TokenLogprob> top = {{1, -0.5F}, {2, -1.5F}};
  list.add(7, std::nullopt, {});
  list.add(8, -2.5F, top);
  list.add(9, -std::numeric_limits<float>::infinity(), {});
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list.at(0).token_id, 7);
  EXPECT_FALSE(list.at(0).logprob);
  EXPECT_TRUE(list.at(0).top_logprobs.empty());
  EXPECT_EQ(list.at(1).logprob->logprob, -2.5F);
  ASSERT_EQ(list.at(1).top_logprobs.size(), 2u);
  EXPECT_EQ(list.at(1).top_logprobs[1].token_id, 2);
  EXPECT_EQ(list.at(1).top_logprobs[1].logprob, -1.5F);
  EXPECT_EQ(list.at(2).logprob->logprob, -std::numeric_limits<float>::infinity());
}

TEST(LogprobList, TakesAsManyBytesAsItSays) {
  for (const size_t num_top : {size_t{0}, size_t{1}, size_t{20}}) {
    LogprobList list(num_top);
    for (int i = 0; i < 100; ++i) list.add(i, -1.0F, {});
    EXPECT_LE(list.num_bytes(), 100 * LogprobList::token_bytes(num_top));
  }
}

ApiRequest request_of(const std::string& members) {
  return parse_request(R"({"prompt": "a")" + members + "}", ApiEndpoint::kCompletions,
                       {.sampling = {}, .vocab_size = 7});
}

TokenEvent event_of(int32_t id, const std::string& text) {
  TokenEvent event;
  event.token_id = id;
  event.text = text;
  event.logprob = TokenLogprob{id, -0.5F};
  event.top_logprobs = {{1, -0.25F}};
  return event;
}

TEST(SequenceOutput, IsTheSumOfItsEvents) {
  SequenceOutput output(request_of(R"(, "logprobs": 1, "echo": true)"));
  TokenEvent first = event_of(3, "x");
  first.prompt_logprobs = {{.token_id = 1, .logprob = {}, .top = {}},
                           {.token_id = 2, .logprob = -1.0F, .top = {{4, -0.75F}}}};
  output.add(first);
  TokenEvent last = event_of(5, "y");
  last.is_low = true;
  last.finish_reason = FinishReason::kStop;
  last.stop_reason = "end";
  last.times = RequestTimes{};
  last.times->num_cached_tokens = 16;
  output.add(last);
  EXPECT_EQ(output.text, "xy");
  EXPECT_EQ(output.num_tokens, 2);
  EXPECT_EQ(output.num_low_tokens, 1);
  EXPECT_EQ(output.num_cached_tokens, 16);
  EXPECT_EQ(output.finish_reason, FinishReason::kStop);
  EXPECT_EQ(output.stop_reason, "end");
  ASSERT_EQ(output.prompt_logprobs.size(), 2u);
  EXPECT_EQ(output.prompt_logprobs.at(1).top_logprobs[0].token_id, 4);
  ASSERT_EQ(output.logprobs.size(), 2u);
  EXPECT_EQ(output.logprobs.at(1).token_id, 5);
}

TEST(SequenceOutput, HasNoTokensWhereOnlyThePromptIsScored) {
  SequenceOutput output(request_of(R"(, "max_tokens": 0, "echo": true, "logprobs": 1)"));
  output.add(event_of(1, "a"));
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(output.num_tokens, 0);
  EXPECT_EQ(output.logprobs.size(), 0u);
}

}  // namespace
}  // namespace halley
