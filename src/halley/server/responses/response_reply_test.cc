#include "halley/server/responses/response_reply.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/server/responses/responses_api.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

const ApiUsage kUsage = {.num_prompt_tokens = 7,
                         .num_cached_tokens = 2,
                         .num_completion_tokens = 5,
                         .num_reasoning_tokens = 3};

ResponseReply make_reply(ResponseReply::OnComplete on_complete = nullptr) {
  return {{.id = "resp_1", .model = "m", .created_s = 9, .echo = {{"metadata", {{"k", "v"}}}}},
          std::move(on_complete)};
}

// The events of a stream; each must be named by its type and numbered in order.
std::vector<OrderedJson> events_of(const std::string& text) {
  std::vector<OrderedJson> events;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find("\n\n", begin);
    const std::string event = text.substr(begin, end - begin);
    const size_t data = event.find("\ndata: ");
    events.push_back(OrderedJson::parse(event.substr(data + 7)));
    EXPECT_EQ("event: " + events.back()["type"].get<std::string>(), event.substr(0, data));
    EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    begin = end + 2;
  }
  return events;
}

std::vector<std::string> types_of(const std::vector<OrderedJson>& events) {
  std::vector<std::string> types;
  for (const OrderedJson& event : events) types.push_back(event["type"]);
  return types;
}

ChoiceDelta text_delta(const std::string& text) {
  ChoiceDelta delta;
  delta.text = text;
  return delta;
}

ChoiceDelta reasoning_delta(const std::string& text) {
  ChoiceDelta delta;
  delta.reasoning = text;
  return delta;
}

ChoiceDelta call_delta(ToolCall call, int64_t index = 0) {
  ChoiceDelta delta;
  delta.calls.push_back({index, std::move(call)});
  return delta;
}

ChoiceDelta end_delta(const std::string& reason) {
  ChoiceDelta delta;
  delta.finish_reason = reason;
  return delta;
}

std::string stream_of(ResponseReply& reply, const std::vector<ChoiceDelta>& deltas) {
  std::string text = reply.begin(kUsage);
  for (const ChoiceDelta& delta : deltas) text += reply.add(delta);
  return text + reply.end(kUsage);
}

TEST(ResponseReply, AWholeAnswerHasItemsInTheirOrder) {
  ResponseReply reply = make_reply();
  ChoiceDelta delta = text_delta("hello");
  delta.reasoning = "why";
  delta.calls = {{0, {"call_1", "f", R"({"x": 1})"}}, {1, {"call_2", "g", "{}"}}};
  delta.finish_reason = "tool_calls";
  const OrderedJson json = OrderedJson::parse(reply.whole(delta, kUsage));
  EXPECT_EQ(json["id"], "resp_1");
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["metadata"]["k"], "v");
  ASSERT_EQ(json["output"].size(), 4);
  EXPECT_EQ(json["output"][0]["type"], "reasoning");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "why");
  EXPECT_EQ(json["output"][1]["type"], "message");
  EXPECT_EQ(json["output"][1]["content"][0]["text"], "hello");
  EXPECT_EQ(json["output"][2]["call_id"], "call_1");
  EXPECT_EQ(json["output"][2]["arguments"], R"({"x": 1})");
  EXPECT_EQ(json["output"][3]["name"], "g");
  EXPECT_EQ(json["usage"], OrderedJson::parse(R"({"input_tokens": 7,
      "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 5,
      "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 12})"));
}

TEST(ResponseReply, AStreamOpensAndClosesEachItem) {
  ResponseReply reply = make_reply();
  const auto events = events_of(stream_of(
      reply, {reasoning_delta("wh"), reasoning_delta("y"), text_delta("hel"), text_delta("lo"),
              call_delta({"call_1", "f", "{"}), call_delta({"", "", "}"}), end_delta("stop")}));
  EXPECT_THAT(
      types_of(events),
      ElementsAre(
          "response.created", "response.in_progress", "response.output_item.added",
          "response.content_part.added", "response.reasoning_text.delta",
          "response.reasoning_text.delta", "response.reasoning_text.done",
          "response.content_part.done", "response.output_item.done", "response.output_item.added",
          "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
          "response.output_text.done", "response.content_part.done", "response.output_item.done",
          "response.output_item.added", "response.function_call_arguments.delta",
          "response.function_call_arguments.delta", "response.function_call_arguments.done",
          "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[6]["text"], "why");
  EXPECT_EQ(events[9]["output_index"], 1);
  EXPECT_EQ(events[9]["item"]["id"], events[11]["item_id"]);
  EXPECT_EQ(events[13]["text"], "hello");
  EXPECT_EQ(events[19]["arguments"], "{}");
  const OrderedJson& output = events.back()["response"]["output"];
  ASSERT_EQ(output.size(), 3);
  EXPECT_EQ(output[0], events[8]["item"]);
  EXPECT_EQ(output[1], events[15]["item"]);
  EXPECT_EQ(output[2], events[20]["item"]);
}

TEST(ResponseReply, WhiteSpaceBesideCallsIsNoItem) {
  ResponseReply reply = make_reply();
  const auto events =
      events_of(stream_of(reply, {text_delta("\n"), call_delta({"1", "f", "{}"}), text_delta("\n"),
                                  call_delta({"2", "f", "{}"}, 1), text_delta(" \n"),
                                  text_delta("x"), end_delta("tool_calls")}));
  const OrderedJson& output = events.back()["response"]["output"];
  ASSERT_EQ(output.size(), 3);
  EXPECT_EQ(output[0]["type"], "function_call");
  EXPECT_EQ(output[1]["type"], "function_call");
  EXPECT_EQ(output[2]["content"][0]["text"], " \nx");
}

TEST(ResponseReply, AnAnswerThatIsCutOffIsIncomplete) {
  ResponseReply reply = make_reply();
  const auto events = events_of(stream_of(reply, {text_delta("hel"), end_delta("length")}));
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  const OrderedJson& response = events.back()["response"];
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
}

TEST(ResponseReply, AStreamThatFailsSaysSoEvenBeforeItsBeginning) {
  const ApiError error = internal_error();
  ResponseReply unbegun = make_reply();
  EXPECT_THAT(types_of(events_of(unbegun.fail(error))),
              ElementsAre("response.created", "response.in_progress", "response.failed"));
  ResponseReply reply = make_reply();
  std::string stream = reply.begin(kUsage);
  stream += reply.fail(error);
  const auto events = events_of(stream);
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events[2]["response"]["status"], "failed");
  EXPECT_EQ(events[2]["response"]["error"]["code"], "server_error");
}

TEST(ResponseReply, GivesTheMessageThatGoesIntoTheConversation) {
  OrderedJson message;
  ResponseReply reply =
      make_reply([&](const OrderedJson&, OrderedJson given) { message = std::move(given); });
  ChoiceDelta delta = text_delta("a");
  delta.reasoning = "b";
  delta.calls = {{0, {"1", "f", R"({"x": 1})"}}, {1, {"2", "f", R"({"x": )"}}};
  delta.finish_reason = "length";
  reply.whole(delta, kUsage);
  EXPECT_EQ(message["content"], "a");
  EXPECT_EQ(message["reasoning_content"], "b");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"]["x"], 1);
  // A call that was cut off stays what the model wrote.
  EXPECT_EQ(message["tool_calls"][1]["function"]["arguments"]["arguments"], R"({"x": )");
}

ParsedChat parse(const ResponsesApi& api, const std::string& body,
                 const std::string& client = "a") {
  static const RequestRules kRules = {.sampling = {}, .vocab_size = 100};
  return api.parse(body, {.rules = kRules, .client = client, .default_model = "m", .now_s = 1});
}

ChoiceDelta answer_of(const std::string& text) {
  ChoiceDelta delta = text_delta(text);
  delta.finish_reason = "stop";
  return delta;
}

TEST(ResponsesApi, GoesOnWithAStoredConversation) {
  const ResponsesApi api({.num_responses_max = 4, .bytes_max = 100'000});
  const ParsedChat first = parse(api, R"({"input": "a", "instructions": "x"})");
  EXPECT_EQ(first.request.messages, OrderedJson::parse(R"([{"role": "system", "content": "x"},
                                   {"role": "user", "content": "a"}])"));
  const OrderedJson response = OrderedJson::parse(first.reply->whole(answer_of("b"), kUsage));
  const std::string id = response["id"];
  EXPECT_THAT(id, StartsWith("resp_"));
  EXPECT_EQ(response["store"], true);
  EXPECT_EQ(OrderedJson::parse(api.stored("a", id)), response);
  const ParsedChat second =
      parse(api, R"({"input": "c", "instructions": "y", "previous_response_id": ")" + id + R"("})");
  EXPECT_EQ(second.request.messages, OrderedJson::parse(R"([{"role": "system", "content": "y"},
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
      {"role": "user", "content": "c"}])"));
  EXPECT_THROW(parse(api, R"({"input": "c", "previous_response_id": ")" + id + R"("})", "b"),
               ApiError);
  EXPECT_THAT(api.erase("a", id), testing::HasSubstr(R"("deleted":true)"));
  EXPECT_THROW(static_cast<void>(api.stored("a", id)), ApiError);
}

TEST(ResponsesApi, StoresNothingWhereItIsOffOrNotAskedFor) {
  const ResponsesApi off({});
  EXPECT_THROW(parse(off, R"({"input": "a", "store": true})"), ApiError);
  EXPECT_THROW(parse(off, R"({"input": "a", "previous_response_id": "resp_1"})"), ApiError);
  const OrderedJson unstored =
      OrderedJson::parse(parse(off, R"({"input": "a"})").reply->whole(answer_of("b"), kUsage));
  EXPECT_EQ(unstored["store"], false);
  const ResponsesApi on({.num_responses_max = 4, .bytes_max = 100'000});
  const OrderedJson response = OrderedJson::parse(
      parse(on, R"({"input": "a", "store": false})").reply->whole(answer_of("b"), kUsage));
  EXPECT_THROW(static_cast<void>(on.stored("a", response["id"])), ApiError);
}

}  // namespace
}  // namespace halley
