// Tests of the APIs whose requests are chats of another format, over the routes.
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/server/app/testing/app_fixture.h"

namespace halley {
namespace {

constexpr const char* kResponses = "/v1/responses";
constexpr const char* kHello = R"("input": "hi", "temperature": 0)";

AppSetup hello_app(const std::string& text = "hello") {
  return writer_of(text, tokenizer()->encode("user hi\nassistant ", false).size());
}

// The data of each event.
std::vector<OrderedJson> events_of(const HttpResponse& response) {
  EXPECT_EQ(response.content_type, "text/event-stream; charset=utf-8") << response.body;
  std::vector<OrderedJson> events;
  for (size_t begin = 0; begin < response.body.size();) {
    const size_t end = response.body.find("\n\n", begin);
    const std::string event = response.body.substr(begin, end - begin);
    begin = end + 2;
    if (event.starts_with(":")) continue;
    const size_t data = event.find("\ndata: ");
    EXPECT_TRUE(event.starts_with("event: ") && data != std::string::npos) << event;
    events.push_back(OrderedJson::parse(event.substr(data + 7)));
    EXPECT_EQ("event: " + events.back()["type"].get<std::string>(), event.substr(0, data));
  }
  return events;
}

TEST(Responses, AnswersAText) {
  App app(hello_app());
  const OrderedJson response =
      app.post_json(kResponses, std::string("{") + kHello + R"(, "model": "other"})");
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["model"], "other");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "hello");
  EXPECT_EQ(response["usage"]["output_tokens"], 6);
  EXPECT_EQ(response["store"], false);
}

TEST(Responses, StreamsWhatItWouldAnswerAtOnce) {
  App app(hello_app());
  OrderedJson whole = app.post_json(kResponses, std::string("{") + kHello + "}");
  const auto events =
      events_of(app.post(kResponses, std::string("{") + kHello + R"(, "stream": true})"));
  std::string text;
  for (const OrderedJson& event : events) {
    if (event["type"] == "response.output_text.delta") text += event["delta"];
  }
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(events.front()["type"], "response.created");
  ASSERT_EQ(events.back()["type"], "response.completed");
  OrderedJson streamed = events.back()["response"];
  for (const char* name : {"id", "created_at", "usage"}) {
    streamed.erase(name);
    whole.erase(name);
  }
  streamed["output"][0].erase("id");
  whole["output"][0].erase("id");
  EXPECT_EQ(streamed, whole);
}

TEST(Responses, EndsAtTheMostTokens) {
  App app(hello_app());
  const OrderedJson response =
      app.post_json(kResponses, std::string("{") + kHello + R"(, "max_output_tokens": 2})");
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "he");
}

TEST(Responses, ACallIsAnItem) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>)";
  const std::string prompt = "user hi\ntools <tool_call>\nassistant ";
  App app(writer_of(call, tokenizer()->encode(prompt, false).size()));
  const std::string body =
      std::string("{") + kHello + R"(, "tools": [{"type": "function", "name": "f"}])";
  const OrderedJson response = app.post_json(kResponses, body + "}");
  ASSERT_EQ(response["output"].size(), 1);
  EXPECT_EQ(response["output"][0]["type"], "function_call");
  EXPECT_EQ(response["output"][0]["name"], "f");
  EXPECT_EQ(response["output"][0]["arguments"], R"({"x": 1})");
  std::string arguments;
  for (const OrderedJson& event : events_of(app.post(kResponses, body + R"(, "stream": true})"))) {
    if (event["type"] == "response.function_call_arguments.delta") arguments += event["delta"];
  }
  EXPECT_EQ(arguments, R"({"x": 1})");
}

TEST(Responses, AreKeptWhereTheServerStoresThem) {
  AppSetup setup = hello_app();
  setup.app.stored_responses = {.num_responses_max = 8, .bytes_max = size_t{1} << 20};
  App app(std::move(setup));
  const OrderedJson response = app.post_json(kResponses, std::string("{") + kHello + "}");
  const std::string id = response["id"];
  const auto ask = [&](const std::string& method) {
    return app.start(method, "/v1/responses/", "", "/v1/responses/" + id)->wait();
  };
  EXPECT_EQ(OrderedJson::parse(ask("GET").body), response);
  const OrderedJson next = app.post_json(
      kResponses,
      R"({"input": "hi", "max_output_tokens": 1, "previous_response_id": ")" + id + R"("})");
  EXPECT_EQ(next["previous_response_id"], id);
  EXPECT_GT(next["usage"]["input_tokens"], response["usage"]["input_tokens"]);
  EXPECT_EQ(ask("DELETE").status, 200);
  EXPECT_EQ(ask("GET").status, 404);
}

TEST(Responses, TheLastEventsOfAStreamWaitForItsReader) {
  const auto exchange =
      std::make_shared<FakeExchange>(std::string("{") + kHello + R"(, "stream": true})");
  AppSetup setup = hello_app();
  int num_steps = 0;
  setup.on_forward = [&](const ForwardBatch&) {
    if (++num_steps == 3) exchange->wait_for_stream();  // the first events are not the last ones
  };
  App app(std::move(setup));
  exchange->hold_reading();
  app.start("POST", kResponses, exchange);
  EXPECT_THAT(exchange->read_piece(), testing::Not(testing::HasSubstr("response.completed")));
  EXPECT_EQ(events_of(exchange->wait()).back()["type"], "response.completed");
}

TEST(Responses, ErrorsAreThoseOfOpenAi) {
  App app(hello_app());
  const HttpResponse stored = app.post(kResponses, R"({"input": "hi", "store": true})");
  EXPECT_EQ(stored.status, 400);
  EXPECT_EQ(OrderedJson::parse(stored.body)["error"]["param"], "store");
  EXPECT_EQ(app.post(kResponses, R"({"input": "hi", "model": "x"})").status, 404);
}

// A stream that was kept alive before the model broke.
HttpResponse broken_stream(const std::string& path, const std::string& body) {
  Signal may_go_on;
  AppSetup setup;
  setup.on_forward = [&](const ForwardBatch&) {
    may_go_on.wait();
    throw DeviceError("broken");
  };
  App app(std::move(setup));
  const auto exchange = app.start("POST", path, body);
  exchange->pass_silence();
  may_go_on.set();
  return exchange->wait();
}

TEST(Responses, AnErrorOfAStreamIsAnEvent) {
  const auto events = events_of(broken_stream(kResponses, R"({"input": "hi", "stream": true})"));
  EXPECT_EQ(events.front()["type"], "response.created");
  ASSERT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["error"]["code"], "server_error");
}

constexpr const char* kMessages = "/v1/messages";
constexpr const char* kHiMessage =
    R"({"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": )";

TEST(Messages, AnswersAConversation) {
  App app(hello_app());
  const OrderedJson message = app.post_json(kMessages, std::string(kHiMessage) + "10}");
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["content"][0]["text"], "hello");
  EXPECT_EQ(message["stop_reason"], "end_turn");
  EXPECT_EQ(message["usage"]["output_tokens"], 6);
  EXPECT_EQ(app.post_json(kMessages, std::string(kHiMessage) + "2}")["stop_reason"], "max_tokens");
}

TEST(Messages, StreamsWhatItWouldAnswerAtOnce) {
  App app(hello_app());
  const auto events =
      events_of(app.post(kMessages, std::string(kHiMessage) + R"(10, "stream": true})"));
  std::string text;
  for (const OrderedJson& event : events) {
    if (event["type"] == "content_block_delta") text += event["delta"]["text"];
  }
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(events.front()["type"], "message_start");
  EXPECT_GT(events.front()["message"]["usage"]["input_tokens"], 0);
  EXPECT_EQ(events.back()["type"], "message_stop");
  EXPECT_EQ(events[events.size() - 2]["delta"]["stop_reason"], "end_turn");
}

TEST(Messages, GoesOnWithTheAssistantsText) {
  App app(writer_of("lo", tokenizer()->encode("user hi\nassistant hel", false).size()));
  const OrderedJson message = app.post_json(kMessages, R"({"messages": [
      {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hel"}],
      "temperature": 0, "max_tokens": 5})");
  EXPECT_EQ(message["content"][0]["text"], "lo");
}

TEST(Messages, CountsTheTokensOfAPrompt) {
  App app(hello_app());
  const OrderedJson counted = app.post_json("/v1/messages/count_tokens",
                                            R"({"messages": [{"role": "user", "content": "hi"}]})");
  EXPECT_EQ(counted["input_tokens"], tokenizer()->encode("user hi\nassistant ", false).size());
}

TEST(Messages, ErrorsAreThoseOfAnthropic) {
  App app(hello_app());
  for (const auto& [body, status, type] :
       {std::tuple("{", 400, "invalid_request_error"),
        std::tuple(R"({"messages": [{"role": "user", "content": "a"}]})", 400,
                   "invalid_request_error"),
        std::tuple(R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1,
                       "model": "x"})",
                   404, "not_found_error")}) {
    const HttpResponse response = app.post(kMessages, body);
    EXPECT_EQ(response.status, status) << body;
    const OrderedJson json = OrderedJson::parse(response.body);
    EXPECT_EQ(json["type"], "error");
    EXPECT_EQ(json["error"]["type"], type);
  }
}

TEST(Messages, ASilentStreamIsPingedAndAnErrorOfItIsAnEvent) {
  const auto events =
      events_of(broken_stream(kMessages, std::string(kHiMessage) + R"(5, "stream": true})"));
  EXPECT_EQ(events.front()["type"], "ping");
  EXPECT_EQ(events.back()["type"], "error");
  EXPECT_EQ(events.back()["error"]["type"], "api_error");
}

AppSetup thinker_app() {
  AppSetup setup = writer_of("<think>\nhm\n</think>\n\nyes",
                             tokenizer()->encode("hi\nassistant ", false).size());
  setup.chat_template =
      "{% for m in messages %}{{ m.content }}\n{% endfor %}assistant "
      "{% if is_short %}<think></think>{% endif %}";
  return setup;
}

TEST(Messages, ThinkingIsABlockOfItsOwn) {
  App app(thinker_app());
  const OrderedJson message = app.post_json(kMessages, std::string(kHiMessage) + "90}");
  ASSERT_EQ(message["content"].size(), 2);
  EXPECT_EQ(message["content"][0]["thinking"], "hm");
  EXPECT_EQ(message["content"][1]["text"], "yes");
  const OrderedJson omitted = app.post_json(
      kMessages,
      std::string(kHiMessage) + R"(90, "thinking": {"type": "adaptive", "display": "omitted"}})");
  ASSERT_EQ(omitted["content"].size(), 1);
  EXPECT_EQ(omitted["content"][0]["text"], "yes");
}

TEST(Responses, ReasoningIsAnItem) {
  App app(thinker_app());
  const OrderedJson response = app.post_json(kResponses, std::string("{") + kHello + "}");
  ASSERT_EQ(response["output"].size(), 2);
  EXPECT_EQ(response["output"][0]["type"], "reasoning");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "hm");
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "yes");
  EXPECT_GT(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
}

}  // namespace
}  // namespace halley
