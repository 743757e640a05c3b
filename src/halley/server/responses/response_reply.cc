#include "halley/server/responses/response_reply.h"

#include <utility>

#include "halley/base/str.h"
#include "halley/server/openai/api_id.h"

namespace halley {
namespace {

using Kind = ReplyBlock::Kind;

constexpr int kIdChars = 24;

OrderedJson usage_of(const ApiUsage& usage) {
  return {{"input_tokens", usage.num_prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.num_cached_tokens}}},
          {"output_tokens", usage.num_completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.num_reasoning_tokens}}},
          {"total_tokens", usage.num_prompt_tokens + usage.num_completion_tokens}};
}

OrderedJson part_of(Kind kind, const std::string& text) {
  if (kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", OrderedJson::array()},
          {"logprobs", OrderedJson::array()}};
}

// `status`: "in_progress" has no text yet.
OrderedJson item_of(const ReplyBlock& block, const char* status) {
  const bool has_begun = std::string_view(status) != "in_progress";
  OrderedJson item = {{"id", block.id}};
  if (block.kind == Kind::kCall) {
    item.update({{"type", "function_call"},
                 {"status", status},
                 {"call_id", block.call.id},
                 {"name", block.call.name},
                 {"arguments", has_begun ? block.text : std::string()}});
    return item;
  }
  OrderedJson content = OrderedJson::array();
  if (has_begun) content.push_back(part_of(block.kind, block.text));
  if (block.kind == Kind::kReasoning) {
    item.update({{"type", "reasoning"}, {"status", status}, {"summary", OrderedJson::array()}});
  } else {
    item.update({{"type", "message"}, {"status", status}, {"role", "assistant"}});
  }
  item["content"] = std::move(content);
  return item;
}

// The names of the events for the text of an item.
std::string text_event(Kind kind, const char* what) {
  switch (kind) {
    case Kind::kReasoning:
      return str("response.reasoning_text.", what);
    case Kind::kText:
      return str("response.output_text.", what);
    case Kind::kCall:
      break;
  }
  return str("response.function_call_arguments.", what);
}

}  // namespace

std::string ResponseReply::make_id(Kind kind) const {
  const char* prefix = kind == Kind::kReasoning ? "rs_" : kind == Kind::kText ? "msg_" : "fc_";
  return random_id(prefix, kIdChars);
}

void ResponseReply::add_event(std::string_view type, OrderedJson members, std::string& events) {
  OrderedJson event = {{"type", type}, {"sequence_number", num_events_++}};
  event.update(members);
  events += named_event(type, event);
}

OrderedJson ResponseReply::response_json(const char* status) const {
  OrderedJson json = {{"id", head_.id},
                      {"object", "response"},
                      {"created_at", head_.created_s},
                      {"status", status},
                      {"background", false},
                      {"error", nullptr},
                      {"incomplete_details", nullptr},
                      {"model", head_.model},
                      {"output", OrderedJson::array()},
                      {"store", head_.is_stored},
                      {"usage", nullptr}};
  json.update(head_.echo);
  return json;
}

void ResponseReply::on_begin(const ApiUsage&, std::string& events) {
  const OrderedJson response = response_json("in_progress");
  add_event("response.created", {{"response", response}}, events);
  add_event("response.in_progress", {{"response", response}}, events);
}

void ResponseReply::on_open(const ReplyBlock& block, std::string& events) {
  add_event("response.output_item.added",
            {{"output_index", block_index()}, {"item", item_of(block, "in_progress")}}, events);
  if (block.kind == Kind::kCall) return;
  add_event("response.content_part.added",
            {{"item_id", block.id},
             {"output_index", block_index()},
             {"content_index", 0},
             {"part", part_of(block.kind, {})}},
            events);
}

void ResponseReply::on_text(const ReplyBlock& block, const std::string& piece,
                            std::string& events) {
  OrderedJson members = {{"item_id", block.id}, {"output_index", block_index()}};
  if (block.kind != Kind::kCall) members["content_index"] = 0;
  members["delta"] = piece;
  if (block.kind == Kind::kText) members["logprobs"] = OrderedJson::array();
  add_event(text_event(block.kind, "delta"), std::move(members), events);
}

void ResponseReply::on_close(const ReplyBlock& block, std::string& events) {
  OrderedJson members = {{"item_id", block.id}, {"output_index", block_index()}};
  if (block.kind == Kind::kCall) {
    members.update({{"name", block.call.name}, {"arguments", block.text}});
    add_event(text_event(block.kind, "done"), std::move(members), events);
  } else {
    members["content_index"] = 0;
    OrderedJson done = members;
    done["text"] = block.text;
    if (block.kind == Kind::kText) done["logprobs"] = OrderedJson::array();
    add_event(text_event(block.kind, "done"), std::move(done), events);
    members["part"] = part_of(block.kind, block.text);
    add_event("response.content_part.done", std::move(members), events);
  }
  add_event("response.output_item.done",
            {{"output_index", block_index()},
             {"item", item_of(block, is_cut_off() ? "incomplete" : "completed")}},
            events);
}

OrderedJson ResponseReply::finished_json(const ApiUsage& usage) {
  OrderedJson response = response_json(is_cut_off() ? "incomplete" : "completed");
  if (is_cut_off()) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  for (size_t i = 0; i < blocks().size(); ++i) {
    const bool is_last = i + 1 == blocks().size();
    response["output"].push_back(
        item_of(blocks()[i], is_last && is_cut_off() ? "incomplete" : "completed"));
  }
  response["usage"] = usage_of(usage);
  if (on_complete_) on_complete_(response, message());
  return response;
}

void ResponseReply::on_end(const ApiUsage& usage, std::string& events) {
  const char* type = is_cut_off() ? "response.incomplete" : "response.completed";
  add_event(type, {{"response", finished_json(usage)}}, events);
}

void ResponseReply::on_fail(const ApiError& error, std::string& events) {
  OrderedJson response = response_json("failed");
  const bool is_ours = error.details().status >= 500;
  response["error"] = {{"code", is_ours ? "server_error" : "invalid_prompt"},
                       {"message", error.what()}};
  add_event("response.failed", {{"response", std::move(response)}}, events);
}

std::string ResponseReply::make_whole(const ApiUsage& usage) {
  return json_text(finished_json(usage));
}

OrderedJson ResponseReply::message() const {
  OrderedJson message = {{"role", "assistant"}, {"content", ""}};
  std::string reasoning, text;
  for (const ReplyBlock& block : blocks()) {
    if (block.kind == Kind::kReasoning) reasoning += block.text;
    if (block.kind == Kind::kText) text += block.text;
    if (block.kind != Kind::kCall) continue;
    message["tool_calls"].push_back(
        {{"id", block.call.id},
         {"type", "function"},
         {"function", {{"name", block.call.name}, {"arguments", arguments_object(block.text)}}}});
  }
  message["content"] = std::move(text);
  if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
  return message;
}

}  // namespace halley
