#include "halley/server/openai/choice_writer.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/engine/testing/fake_tokenizer.h"
#include "halley/server/openai/request_parser.h"

namespace halley {
namespace {

const FakeTokenizer& tokenizer() {
  static const FakeTokenizer kTokenizer({"<|eos|>", "a", " b", "\xC3\xA9", "\xC3", "{", "}"});
  return kTokenizer;
}

ApiRequest request_of(ApiEndpoint endpoint, const std::string& members) {
  const bool is_chat = endpoint == ApiEndpoint::kChat;
  const std::string begin =
      is_chat ? R"({"messages": [{"role": "user", "content": "a"}])" : R"({"prompt": "a")";
  return parse_request(begin + members + "}", endpoint, {.sampling = {}, .vocab_size = 7});
}

TokenEvent event_of(int32_t id, const std::string& text) {
  TokenEvent event;
  event.token_id = id;
  event.text = text;
  event.logprob = TokenLogprob{id, -0.5F};
  event.top_logprobs = {{1, -0.25F}, {id, -0.5F}};
  return event;
}

TokenEvent end_of(FinishReason reason, const std::string& stop_reason = "") {
  TokenEvent event;
  event.finish_reason = reason;
  event.stop_reason = stop_reason;
  return event;
}

const AnswerHead kChatHead = {.is_chat = true};

TEST(ChoiceWriter, PutsLogprobsOfCompletionsIntoFourLists) {
  const ApiRequest request = request_of(ApiEndpoint::kCompletions, R"(, "logprobs": 2)");
  const TokenTexts texts(tokenizer());
  ChoiceWriter writer(request, texts, ToolDialect::kNone);
  EXPECT_EQ(writer.push(event_of(3, "\xC3\xA9")).logprobs.dump(),
            "{\"text_offset\":[0],\"token_logprobs\":[-0.5],\"tokens\":[\"\xC3\xA9\"],"
            "\"top_logprobs\":[{\"a\":-0.25,\"\xC3\xA9\":-0.5}]}");
  // Offsets are characters, not bytes.
  EXPECT_EQ(writer.push(event_of(2, " b")).logprobs.dump(),
            R"({"text_offset":[1],"token_logprobs":[-0.5],"tokens":[" b"],)"
            R"("top_logprobs":[{"a":-0.25," b":-0.5}]})");
}

TEST(ChoiceWriter, PutsLogprobsOfChatsIntoOneList) {
  const ApiRequest request =
      request_of(ApiEndpoint::kChat, R"(, "logprobs": true, "top_logprobs": 1)");
  const TokenTexts texts(tokenizer());
  ChoiceWriter writer(request, texts, ToolDialect::kNone);
  TokenEvent event = event_of(3, "\xC3\xA9");
  event.top_logprobs = {{4, -std::numeric_limits<float>::infinity()}};
  const OrderedJson logprobs = writer.push(event).logprobs;
  EXPECT_EQ(logprobs["content"][0]["bytes"].dump(), "[195,169]");
  // A token that is no whole character has no text to take bytes from.
  EXPECT_EQ(logprobs["content"][0]["top_logprobs"].dump(),
            "[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-9999.0,\"bytes\":null}]");
}

TEST(ChoiceWriter, EchoStandsBeforeTheOutput) {
  const ApiRequest request =
      request_of(ApiEndpoint::kCompletions, R"(, "logprobs": 1, "echo": true)");
  const TokenTexts texts(tokenizer());
  ChoiceWriter writer(request, texts, ToolDialect::kNone);
  const std::vector<TokenDetail> prompt = {
      {.token_id = 1, .logprob = {}, .top_logprobs = {}},
      {.token_id = 2, .logprob = TokenLogprob{2, -1}, .top_logprobs = {{1, -0.75F}}}};
  const ChoiceDelta echo = writer.echo("a b", prompt);
  EXPECT_EQ(echo.text, "a b");
  EXPECT_EQ(echo.logprobs["token_logprobs"].dump(), "[null,-1.0]");
  EXPECT_EQ(echo.logprobs["text_offset"].dump(), "[0,1]");
  EXPECT_EQ(echo.logprobs["top_logprobs"].dump(), R"([null,{"a":-0.75," b":-1.0}])");
  EXPECT_EQ(writer.push(event_of(1, "a")).logprobs["text_offset"].dump(), "[3]");
}

TEST(ChoiceWriter, NoTokensAreShownWhereOnlyThePromptIsScored) {
  const ApiRequest request =
      request_of(ApiEndpoint::kCompletions, R"(, "max_tokens": 0, "echo": true)");
  const TokenTexts texts(tokenizer());
  ChoiceWriter writer(request, texts, ToolDialect::kNone);
  TokenEvent event = event_of(1, "a");
  event.finish_reason = FinishReason::kStop;
  const ChoiceDelta delta = writer.push(event);
  EXPECT_EQ(delta.text, "");
  EXPECT_EQ(delta.finish_reason, "length");
  EXPECT_EQ(writer.num_tokens(), 0);
}

TEST(ChoiceWriter, SaysWhyATextEnded) {
  const ApiRequest request = request_of(ApiEndpoint::kCompletions, "");
  const TokenTexts texts(tokenizer());
  ChoiceWriter stopped(request, texts, ToolDialect::kNone);
  const ChoiceDelta stop = stopped.push(end_of(FinishReason::kStop, "b"));
  EXPECT_EQ(stop.finish_reason, "stop");
  EXPECT_EQ(stop.stop_reason, "b");
  ChoiceWriter cut(request, texts, ToolDialect::kNone);
  EXPECT_EQ(cut.push(end_of(FinishReason::kLength)).finish_reason, "length");
}

constexpr const char* kTools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
constexpr const char* kTwoCalls =
    R"(<tool_call>{"name": "f"}</tool_call><tool_call>{"name": "f"}</tool_call>)";

TEST(ChoiceWriter, GivesCallsWithIdsAndTheirFinishReason) {
  const ApiRequest request = request_of(ApiEndpoint::kChat, kTools);
  const TokenTexts texts(tokenizer());
  ChoiceWriter writer(request, texts, ToolDialect::kHermes);
  TokenEvent event = event_of(1, kTwoCalls);
  event.finish_reason = FinishReason::kStop;
  ChoiceDelta delta = writer.push(event);
  EXPECT_EQ(delta.finish_reason, "tool_calls");
  EXPECT_EQ(delta.text, "");
  delta.join_calls();
  ASSERT_EQ(delta.calls.size(), 2u);
  EXPECT_NE(delta.calls[0].call.id, delta.calls[1].call.id);
  EXPECT_EQ(delta.calls[1].call.name, "f");
  EXPECT_EQ(delta.calls[1].call.arguments, "{}");
}

TEST(ChoiceWriter, NumbersTheCallsOfAStream) {
  const ApiRequest request = request_of(ApiEndpoint::kChat, kTools);
  const TokenTexts texts(tokenizer());
  ChoiceWriter writer(request, texts, ToolDialect::kMistral);
  writer.push(event_of(1, "[TOOL_CALLS]f{}"));
  const ChoiceDelta second = writer.push(event_of(1, "[TOOL_CALLS]f{}"));
  const OrderedJson chunk = answer_chunk(kChatHead, 0, second);
  const OrderedJson& call = chunk["choices"][0]["delta"]["tool_calls"][0];
  EXPECT_EQ(call["index"], 1);
  EXPECT_EQ(call["id"].get<std::string>().size(), 9u);  // as Mistral's templates demand
}

TEST(ChoiceWriter, GivesOneCallWhereMoreAreNotWanted) {
  const ApiRequest request =
      request_of(ApiEndpoint::kChat, std::string(kTools) + R"(, "parallel_tool_calls": false)");
  const TokenTexts texts(tokenizer());
  ChoiceWriter writer(request, texts, ToolDialect::kHermes);
  EXPECT_EQ(writer.push(event_of(1, kTwoCalls)).calls.size(), 1u);
}

TEST(ChoiceWriter, LooksForNoCallsWhereThereAreNoTools) {
  const ApiRequest request = request_of(ApiEndpoint::kChat, "");
  const TokenTexts texts(tokenizer());
  ChoiceWriter writer(request, texts, ToolDialect::kHermes);
  EXPECT_EQ(writer.push(event_of(1, kTwoCalls)).text, kTwoCalls);
}

TEST(ChoiceWriter, CountsTheTokensOfLowSteps) {
  const ApiRequest request = request_of(ApiEndpoint::kCompletions, "");
  const TokenTexts texts(tokenizer());
  ChoiceWriter writer(request, texts, ToolDialect::kNone);
  for (const bool is_low : {true, false, true}) {
    TokenEvent event = event_of(1, "a");
    event.is_low = is_low;
    writer.push(event);
  }
  TokenEvent end = end_of(FinishReason::kStop);  // without a token
  end.is_low = true;
  writer.push(end);
  EXPECT_EQ(writer.num_tokens(), 3);
  EXPECT_EQ(writer.num_low_tokens(), 2);
}

TEST(Answer, TellsThePrecisionOfTokensWhereThereAreSeveral) {
  ApiUsage usage = {.num_prompt_tokens = 3, .num_completion_tokens = 20, .num_low_tokens = 5};
  EXPECT_FALSE(usage_json(usage).contains("completion_tokens_details"));
  usage.has_precisions = true;
  EXPECT_EQ(usage_json(usage)["completion_tokens_details"],
            OrderedJson::parse(R"({"precision": {"full": 15, "low": 5}})"));
  const OrderedJson chunk = usage_chunk(kChatHead, usage);
  EXPECT_EQ(chunk["usage"], usage_json(usage));
}

TEST(Answer, ChunksAreEventsInOneLine) {
  ChoiceDelta delta;
  delta.text = "a\n\n\xFF";
  const std::string event = sse_event(answer_chunk(kChatHead, 1, delta));
  EXPECT_TRUE(event.starts_with("data: {")) << event;
  EXPECT_EQ(event.find('\n'), event.size() - 2) << event;
  EXPECT_NE(event.find(R"("object":"chat.completion.chunk")"), std::string::npos);
  EXPECT_NE(event.find("\"delta\":{\"content\":\"a\\n\\n\xEF\xBF\xBD\"}"), std::string::npos);
  const OrderedJson role = role_chunk(kChatHead, 1);
  EXPECT_EQ(role["choices"][0]["delta"].dump(), R"({"role":"assistant","content":""})");
}

TEST(ChunkWriter, WritesTheBytesOfTheJson) {
  const std::string odd_name = R"(a","choices":[{"index":1,"text":"?")";
  for (const bool is_chat : {false, true}) {
    for (const bool has_null_usage : {false, true}) {
      const AnswerHead head = {.is_chat = is_chat, .id = "x-1", .created_s = 7, .model = odd_name};
      const ChunkWriter writer(head, has_null_usage);
      for (const char* text : {"a", " b", "?", "\"\\\n", "\xC3\xA9\x7F", "\xFF"}) {
        for (const int64_t index : {0, 1, 127}) {
          ChoiceDelta delta;
          delta.text = text;
          OrderedJson chunk = answer_chunk(head, index, delta);
          if (has_null_usage) chunk["usage"] = nullptr;
          std::string out = "before";
          EXPECT_TRUE(writer.append(index, delta, out));
          EXPECT_EQ(out, "before" + sse_event(chunk));
        }
      }
    }
  }
}

TEST(ChunkWriter, LeavesAllButTextToTheJson) {
  const ChunkWriter writer(kChatHead, false);
  std::string out;
  ChoiceDelta end;
  end.text = "a";
  end.finish_reason = "stop";
  EXPECT_FALSE(writer.append(0, end, out));
  ChoiceDelta logprobs;
  logprobs.text = "a";
  logprobs.logprobs = OrderedJson::object();
  EXPECT_FALSE(writer.append(0, logprobs, out));
  EXPECT_FALSE(writer.append(0, {}, out));
  EXPECT_EQ(out, "");
}

}  // namespace
}  // namespace halley
