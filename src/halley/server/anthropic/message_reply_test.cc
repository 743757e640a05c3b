#include "halley/server/anthropic/message_reply.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/server/anthropic/messages_api.h"

namespace halley {
namespace {

using testing::ElementsAre;

const ApiUsage kUsage = {
    .num_prompt_tokens = 7, .num_cached_tokens = 2, .num_completion_tokens = 5};

MessageReply make_reply(bool is_stream = false) {
  return MessageReply(
      {.id = "msg_1", .model = "m", .stop_sequences = {"end"}, .is_stream = is_stream});
}

std::vector<OrderedJson> events_of(const std::string& text) {
  std::vector<OrderedJson> events;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find("\n\n", begin);
    const std::string event = text.substr(begin, end - begin);
    const size_t data = event.find("\ndata: ");
    events.push_back(OrderedJson::parse(event.substr(data + 7)));
    EXPECT_EQ("event: " + events.back()["type"].get<std::string>(), event.substr(0, data));
    begin = end + 2;
  }
  return events;
}

ChoiceDelta text_delta(const std::string& text) {
  ChoiceDelta delta;
  delta.text = text;
  return delta;
}

ChoiceDelta end_delta(const std::string& reason, const std::string& stop = {}) {
  ChoiceDelta delta;
  delta.finish_reason = reason;
  delta.stop_reason = stop;
  return delta;
}

TEST(MessageReply, AWholeMessageHasBlocksInTheirOrder) {
  MessageReply reply = make_reply();
  ChoiceDelta delta = end_delta("tool_calls");
  delta.reasoning = "why";
  delta.text = "hello";
  delta.calls = {{0, {"call_1", "f", R"({"x": 1})"}}};
  EXPECT_EQ(OrderedJson::parse(reply.whole(delta, kUsage)), OrderedJson::parse(R"({
      "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [
        {"type": "thinking", "thinking": "why", "signature": ""},
        {"type": "text", "text": "hello"},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {"x": 1}}],
      "stop_reason": "tool_use", "stop_sequence": null,
      "usage": {"input_tokens": 5, "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 2, "output_tokens": 5}})"));
}

TEST(MessageReply, AStreamOpensAndClosesEachBlock) {
  MessageReply reply = make_reply(/*is_stream=*/true);
  std::string text = reply.begin(kUsage);
  ChoiceDelta thought;
  thought.reasoning = "why";
  ChoiceDelta call;
  call.calls = {{0, {"call_1", "f", R"({"x")"}}};
  ChoiceDelta rest;
  rest.calls = {{0, {"", "", ": 1}"}}};
  for (const ChoiceDelta& delta : {thought, text_delta("hel"), text_delta("lo"), text_delta("\n"),
                                   call, rest, end_delta("tool_calls")}) {
    text += reply.add(delta);
  }
  text += reply.end(kUsage);
  const auto events = events_of(text);
  std::vector<std::string> types;
  for (const OrderedJson& event : events) types.push_back(event["type"]);
  EXPECT_THAT(types,
              ElementsAre("message_start", "content_block_start", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_delta", "content_block_delta", "content_block_stop",
                          "content_block_start", "content_block_delta", "content_block_delta",
                          "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(events[0]["message"]["content"], OrderedJson::array());
  EXPECT_EQ(events[2]["delta"]["thinking"], "why");
  EXPECT_EQ(events[5]["delta"]["text"], "hel");
  EXPECT_EQ(events[9]["index"], 2);
  EXPECT_EQ(
      events[9]["content_block"],
      OrderedJson::parse(R"({"type": "tool_use", "id": "call_1", "name": "f", "input": {}})"));
  EXPECT_EQ(events[10]["delta"]["partial_json"], R"({"x")");
  EXPECT_EQ(events[13]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(events[13]["usage"]["output_tokens"], 5);
}

TEST(MessageReply, SaysWhyTheOutputEnded) {
  const auto stop_of = [](const ChoiceDelta& delta) {
    MessageReply reply = make_reply();
    const OrderedJson json = OrderedJson::parse(reply.whole(delta, kUsage));
    return std::make_pair(json["stop_reason"].get<std::string>(), json["stop_sequence"]);
  };
  using Stop = std::pair<std::string, OrderedJson>;
  EXPECT_EQ(stop_of(end_delta("stop")), Stop("end_turn", nullptr));
  EXPECT_EQ(stop_of(end_delta("stop", "end")), Stop("stop_sequence", "end"));
  EXPECT_EQ(stop_of(end_delta("stop", "7")), Stop("end_turn", nullptr));  // a token
  EXPECT_EQ(stop_of(end_delta("length")), Stop("max_tokens", nullptr));
}

TEST(MessageReply, InputThatIsNoObjectStaysWhatTheModelWrote) {
  MessageReply reply = make_reply();
  ChoiceDelta delta = end_delta("length");
  delta.calls = {{0, {"1", "f", R"({"x": )"}}};
  const OrderedJson json = OrderedJson::parse(reply.whole(delta, kUsage));
  EXPECT_EQ(json["content"][0]["input"], OrderedJson::parse(R"({"arguments": "{\"x\": "})"));
}

TEST(MessageReply, ErrorsHaveTheTypesOfTheApi) {
  const MessagesApi api;
  EXPECT_EQ(OrderedJson::parse(api.error_body(invalid_field("a", "a: wrong"))),
            OrderedJson::parse(R"({"type": "error", "error": {"type": "invalid_request_error",
                                   "message": "a: wrong"}})"));
  for (const auto& [status, type] : {std::pair(401, "authentication_error"),
                                     {404, "not_found_error"},
                                     {413, "request_too_large"},
                                     {500, "api_error"},
                                     {503, "overloaded_error"},
                                     {504, "timeout_error"}}) {
    EXPECT_EQ(message_error(status, "x")["error"]["type"], type) << status;
  }
  EXPECT_EQ(message_error_body(401, R"({"error": {"message": "a key", "type": "x"}})"),
            R"({"type":"error","error":{"type":"authentication_error","message":"a key"}})");
  MessageReply reply = make_reply(/*is_stream=*/true);
  std::string stream = reply.begin(kUsage);
  stream += reply.fail(overloaded("full", 1));
  EXPECT_EQ(events_of(stream).back()["error"]["type"], "overloaded_error");
}

}  // namespace
}  // namespace halley
