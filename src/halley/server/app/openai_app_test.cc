#include "halley/server/app/openai_app.h"

#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/server/app/testing/app_fixture.h"

namespace halley {
namespace {

using testing::HasSubstr;

TEST(OpenAiApp, CompletesAPrompt) {
  App app(writer_of("hello you", 2));
  const OrderedJson answer =
      app.post_json("/v1/completions", R"({"prompt": "ab", "temperature": 0})");
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "fake");
  EXPECT_EQ(answer["choices"][0]["text"], "hello you");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 10);  // with the end token
}

TEST(OpenAiApp, EndsAtTheDefaultNumberOfTokens) {
  App app(writer_of(std::string(20, 'b'), 1));
  const OrderedJson answer =
      app.post_json("/v1/completions", R"({"prompt": "a", "temperature": 0})");
  EXPECT_EQ(answer["choices"][0]["text"], std::string(16, 'b'));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
}

TEST(OpenAiApp, AnswersAChat) {
  App app(writer_of("hello", tokenizer()->encode("user hi\nassistant ", false).size()));
  const OrderedJson answer = app.post_json(
      "/v1/chat/completions",
      R"({"model": "other", "messages": [{"role": "user", "content": "hi"}], "temperature": 0})");
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "other");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "hello");
}

TEST(OpenAiApp, StreamsWhatItWouldAnswerAtOnce) {
  for (const std::string path : {"/v1/completions", "/v1/chat/completions"}) {
    const bool is_chat = path == "/v1/chat/completions";
    App app;
    const std::string fields = std::string(is_chat ? R"("messages": [{"role": "user",
        "content": "hi"}])"
                                                   : R"("prompt": ["ab", "c"])") +
                               R"(, "n": 2, "seed": 5, "max_tokens": 20)";
    const OrderedJson whole = app.post_json(path, "{" + fields + "}");
    const HttpResponse response = app.post(
        path, "{" + fields + R"(, "stream": true, "stream_options": {"include_usage": true}})");
    EXPECT_EQ(response.content_type, "text/event-stream; charset=utf-8");
    std::vector<std::string> texts(whole["choices"].size());
    std::vector<std::string> reasons(texts.size());
    std::vector<bool> has_role(texts.size());
    const std::vector<OrderedJson> chunks = chunks_of(response);
    for (size_t i = 0; i + 1 < chunks.size(); ++i) {
      EXPECT_TRUE(chunks[i]["usage"].is_null());
      const OrderedJson& choice = chunks[i]["choices"][0];
      const auto index = choice["index"].get<size_t>();
      if (is_chat && choice["delta"].contains("role")) {
        EXPECT_EQ(texts[index], "") << "the role comes first";
        has_role[index] = true;
      }
      texts[index] +=
          is_chat ? choice["delta"].value("content", "") : choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) reasons[index] = choice["finish_reason"];
    }
    // The second time the prompt is in the prefix cache.
    OrderedJson usage = chunks.back()["usage"];
    usage["prompt_tokens_details"] = whole["usage"]["prompt_tokens_details"];
    EXPECT_EQ(usage, whole["usage"]);
    EXPECT_TRUE(chunks.back()["choices"].empty());
    for (size_t i = 0; i < texts.size(); ++i) {
      const OrderedJson& choice = whole["choices"][i];
      EXPECT_EQ(texts[i], is_chat ? choice["message"]["content"] : choice["text"]);
      EXPECT_EQ(reasons[i], choice["finish_reason"]);
      EXPECT_EQ(has_role[i], is_chat);
    }
    EXPECT_NE(texts[0], texts[1]) << "choices have seeds of their own";
  }
}

// Requests of an unknown precision run in the lower one of two.
AppSetup lower_of_two() {
  AppSetup setup;
  setup.levels = fake_levels();
  setup.engine.precision = PrecisionMode::kLow;
  return setup;
}

TEST(OpenAiApp, CountsTheTokensOfEachPrecision) {
  App app(lower_of_two());
  const std::string fields =
      R"("prompt": ["ab", "c"], "n": 2, "max_tokens": 5, "ignore_eos": true)";
  const auto expect = [](const OrderedJson& usage, int64_t num_full, int64_t num_low) {
    EXPECT_EQ(usage["completion_tokens"], num_full + num_low);
    const OrderedJson& counts = usage["completion_tokens_details"]["precision"];
    EXPECT_EQ(counts["full"], num_full);
    EXPECT_EQ(counts["low"], num_low);
  };
  const std::string full = fields + R"(, "precision": "full")";
  expect(app.post_json("/v1/completions", "{" + fields + "}")["usage"], 0, 20);
  expect(app.post_json("/v1/completions", "{" + full + "}")["usage"], 20, 0);
  const std::string stream = R"(, "stream": true, "stream_options": {"include_usage": true}})";
  expect(chunks_of(app.post("/v1/completions", "{" + fields + stream)).back()["usage"], 0, 20);
  expect(chunks_of(app.post("/v1/completions", "{" + full + stream)).back()["usage"], 20, 0);
  const auto chunks = chunks_of(app.post(
      "/v1/completions",
      "{" + fields + R"(, "stream": true, "stream_options": {"continuous_usage_stats": true}})"));
  for (const OrderedJson& chunk : chunks) {
    expect(chunk["usage"], 0, chunk["usage"]["completion_tokens"].get<int64_t>());
  }
}

TEST(OpenAiApp, ShowsThePrecisionAndItsSwitches) {
  App app(lower_of_two());
  app.post("/v1/completions", R"({"prompt": "a", "max_tokens": 2})");
  app.post("/v1/completions", R"({"prompt": "a", "max_tokens": 2, "precision": "full"})");
  const OrderedJson state = OrderedJson::parse(app.get("/precision").body);
  EXPECT_EQ(state["mode"], "low");
  EXPECT_EQ(state["precision"], "f16");
  ASSERT_EQ(state["last_switches"].size(), 2u);
  EXPECT_EQ(state["last_switches"][0]["precision"], "e4m3");
  const auto age = [&](size_t i) { return state["last_switches"][i]["seconds_ago"].get<double>(); };
  EXPECT_GE(age(0), age(1));
  EXPECT_GE(age(1), 0);
}

TEST(OpenAiApp, DoesNotSpeakOfPrecisionsWhereThereIsOne) {
  App app;
  const std::string fields = R"({"prompt": "a", "max_tokens": 2, "precision": )";
  for (const char* mode : {"\"full\"", "\"auto\""}) {
    const OrderedJson answer = app.post_json("/v1/completions", fields + mode + "}");
    EXPECT_FALSE(answer["usage"].contains("completion_tokens_details"));
  }
  const OrderedJson state = OrderedJson::parse(app.get("/precision").body);
  EXPECT_TRUE(state["precisions"].empty());
  EXPECT_TRUE(state["precision"].is_null());
}

TEST(OpenAiApp, ContinuousUsageIsInEveryChunk) {
  App app(writer_of("abc", 1));
  const auto chunks =
      chunks_of(app.post("/v1/completions", R"({"prompt": "a", "temperature": 0, "stream": true,
                             "stream_options": {"continuous_usage_stats": true}})"));
  ASSERT_FALSE(chunks.empty());
  for (const OrderedJson& chunk : chunks) EXPECT_EQ(chunk["usage"]["prompt_tokens"], 1);
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], 4);
}

TEST(OpenAiApp, GivesLogprobs) {
  App app(writer_of("ab", 1));
  const OrderedJson answer =
      app.post_json("/v1/completions", R"({"prompt": "a", "temperature": 0, "logprobs": 2})");
  const OrderedJson& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"].dump(), R"(["a","b","<|eos|>"])");
  EXPECT_EQ(logprobs["text_offset"].dump(), "[0,1,2]");
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 2u);
  EXPECT_EQ(logprobs["top_logprobs"][0]["a"], logprobs["token_logprobs"][0]);
}

TEST(OpenAiApp, EchoesThePrompt) {
  App app(writer_of("cd", 2));
  const OrderedJson text =
      app.post_json("/v1/completions", R"({"prompt": "ab", "temperature": 0, "echo": true})");
  EXPECT_EQ(text["choices"][0]["text"], "abcd");
  const std::string ids = str(tokenizer()->encode("ab", false));
  const OrderedJson of_ids = app.post_json(
      "/v1/completions", "{\"prompt\": " + ids + R"(, "temperature": 0, "echo": true})");
  EXPECT_EQ(of_ids["choices"][0]["text"], "abcd");
}

TEST(OpenAiApp, EchoScoresThePrompt) {
  App app(writer_of("bc", 1));
  const OrderedJson answer = app.post_json("/v1/completions", R"({"prompt": "abc", "echo": true,
      "logprobs": 1, "max_tokens": 0})");
  const OrderedJson& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(answer["choices"][0]["text"], "abc");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  EXPECT_EQ(logprobs["tokens"].dump(), R"(["a","b","c"])");
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  // The model is scripted: its most likely token is that of the prompt.
  EXPECT_EQ(logprobs["token_logprobs"][1], logprobs["top_logprobs"][1]["b"]);
  EXPECT_GT(logprobs["token_logprobs"][2].get<double>(), -0.1);
}

TEST(OpenAiApp, ARequestWhoseTimeHasPassedIsATimeout) {
  AppSetup setup;
  setup.app.request_timeout_s = 1e-9;
  App app(std::move(setup));
  const HttpResponse response = app.post("/v1/completions", R"({"prompt": "a"})");
  EXPECT_EQ(response.status, 504);
  EXPECT_THAT(response.body, HasSubstr("\"code\":\"timeout\""));
  // A request's own timeout overrides the server's.
  EXPECT_EQ(app.post("/v1/completions", R"({"prompt": "a", "timeout": 60})").status, 200);
}

TEST(OpenAiApp, ARequestWhoseClientIsGoneIsNotPrepared) {
  std::atomic<int> num_sequences{0};
  AppSetup setup;
  setup.app.make_observer = [&] {
    ++num_sequences;
    return TokenCallback();
  };
  App app(std::move(setup));
  for (const std::string path : {"/v1/completions", "/tokenize"}) {
    for (const HttpRoute& route : app.routes()) {
      if (route.path != path) continue;
      const auto exchange = std::make_shared<FakeExchange>(R"({"prompt": "a"})");
      exchange->disconnect();
      route.handler(exchange);
      // Requests of one client are prepared in turn: this one comes behind.
      app.post_json("/tokenize", R"({"prompt": "a"})");
      EXPECT_FALSE(exchange->has_answer()) << path;
    }
  }
  EXPECT_EQ(num_sequences, 0);
}

TEST(OpenAiApp, ObserversSeeEveryEvent) {
  std::atomic<int> num_sequences{0}, num_tokens{0}, num_ends{0};
  AppSetup setup = writer_of("abc", 1);
  setup.app.make_observer = [&] {
    ++num_sequences;
    return [&](const TokenEvent& event) {
      num_tokens += event.token_id ? 1 : 0;
      num_ends += event.finish_reason ? 1 : 0;
    };
  };
  App app(std::move(setup));
  app.post_json("/v1/completions", R"({"prompt": "a", "temperature": 0, "n": 2})");
  EXPECT_EQ(num_sequences, 2);
  EXPECT_EQ(num_tokens, 8);
  EXPECT_EQ(num_ends, 2);
}

constexpr const char* kToolChat = R"({"messages": [{"role": "user", "content": "hi"}],
    "temperature": 0, "tools": [{"type": "function", "function": {"name": "add"}}])";

TEST(OpenAiApp, FindsToolCalls) {
  // "user hi\ntools <tool_call>\nassistant ": the template shows the dialect.
  const size_t num_prompt_tokens =
      tokenizer()->encode("user hi\ntools <tool_call>\nassistant ", false).size();
  App app(writer_of(R"(ok <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>)",
                    num_prompt_tokens));
  const OrderedJson answer = app.post_json("/v1/chat/completions", std::string(kToolChat) + "}");
  const OrderedJson& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "ok");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"a": 1})");
}

// Joins a stream's calls as OpenAI's client does: "name(arguments)" of each. Counts the pieces.
std::string calls_of(const std::vector<OrderedJson>& chunks, size_t& num_pieces) {
  std::vector<std::string> calls;
  for (const OrderedJson& chunk : chunks) {
    const OrderedJson& delta = chunk["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    for (const OrderedJson& piece : delta["tool_calls"]) {
      const auto index = piece["index"].get<size_t>();
      const OrderedJson& function = piece["function"];
      if (index == calls.size()) {  // only the first piece of a call has its name
        EXPECT_TRUE(piece["id"].get<std::string>().starts_with("call_"));
        EXPECT_EQ(piece["type"], "function");
        calls.push_back(function["name"].get<std::string>() + "(");
      } else {
        EXPECT_FALSE(piece.contains("id") || function.contains("name")) << piece;
      }
      calls.at(index) += function["arguments"].get<std::string>();
      ++num_pieces;
    }
  }
  std::string text;
  for (const std::string& call : calls) text += call + ")";
  return text;
}

TEST(OpenAiApp, StreamsTheArgumentsOfCalls) {
  const size_t num_prompt_tokens =
      tokenizer()->encode("user hi\ntools <tool_call>\nassistant ", false).size();
  App app(writer_of(R"(<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>)"
                    R"(<tool_call>{"name": "add", "arguments": {"b": 2}}</tool_call>)",
                    num_prompt_tokens));
  size_t num_pieces = 0;
  const auto chunks =
      chunks_of(app.post("/v1/chat/completions", std::string(kToolChat) + R"(, "stream": true})"));
  EXPECT_EQ(calls_of(chunks, num_pieces), R"(add({"a": 1})add({"b": 2}))");
  EXPECT_GT(num_pieces, 10u);
  EXPECT_EQ(chunks.back()["choices"][0]["finish_reason"], "tool_calls");
}

TEST(OpenAiApp, ForcesCallsInTheModelsDialect) {
  // The model's logits are arbitrary; the constraint makes the output a call.
  for (const std::string choice :
       {R"("required")", R"({"type": "function", "function": {"name": "add"}})"}) {
    const std::string body = R"({"messages": [{"role": "user", "content": "hi"}], "seed": 3,
        "max_tokens": 400, "tool_choice": )" +
                             choice + R"(, "parallel_tool_calls": false,
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {
            "type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
            "additionalProperties": false}}}])";
    App app;
    const OrderedJson answer = app.post_json("/v1/chat/completions", body + "}")["choices"][0];
    EXPECT_EQ(answer["finish_reason"], "tool_calls") << answer;
    EXPECT_TRUE(answer["message"]["content"].is_null()) << answer;
    const OrderedJson& function = answer["message"]["tool_calls"][0]["function"];
    EXPECT_EQ(function["name"], "add");
    EXPECT_TRUE(OrderedJson::parse(function["arguments"].get<std::string>())["a"].is_boolean());
    size_t num_pieces = 0;
    const auto chunks = chunks_of(app.post("/v1/chat/completions", body + R"(, "stream": true})"));
    EXPECT_EQ(calls_of(chunks, num_pieces),
              "add(" + function["arguments"].get<std::string>() + ")");
    EXPECT_GT(num_pieces, 1u);
  }
}

TEST(OpenAiApp, TellsWhatWasIgnoredInAHeaderAndOnceInTheLog) {
  std::vector<std::string> told;
  std::mutex mutex;
  AppSetup setup;
  setup.app.on_ignored = [&](const std::string& id, const std::string& paths) {
    const std::lock_guard lock(mutex);
    told.push_back(id + ": " + paths);
  };
  App app(std::move(setup));
  const std::string messages =
      R"("messages": [{"role": "user", "content": "a", "x\r\ny": 1}], "max_tokens": 2)";
  const HttpHeaders expected = {{"x-halley-ignored", "messages[].x%0D%0Ay"}};
  EXPECT_EQ(app.post("/v1/chat/completions", "{" + messages + R"(, "n": 2})").headers, expected);
  EXPECT_THAT(app.post("/v1/chat/completions", "{" + messages + R"(, "stream": true})").headers,
              testing::Contains(expected.front()));
  EXPECT_EQ(app.post("/tokenize", R"({"messages": [{"role": "user", "content": "a", "z": 1}]})")
                .headers.front()
                .second,
            "messages[].z");
  EXPECT_TRUE(app.post("/v1/completions", R"({"prompt": "a", "max_tokens": 1})").headers.empty());
  EXPECT_THAT(told, testing::ElementsAre("test: messages[].x%0D%0Ay", "test: messages[].x%0D%0Ay",
                                         "test: messages[].z"));
}

}  // namespace
}  // namespace halley
