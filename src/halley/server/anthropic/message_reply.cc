#include "halley/server/anthropic/message_reply.h"

#include <algorithm>

namespace halley {
namespace {

using Kind = ReplyBlock::Kind;

OrderedJson usage_of(const ApiUsage& usage) {
  return {{"input_tokens", usage.num_prompt_tokens - usage.num_cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.num_cached_tokens},
          {"output_tokens", usage.num_completion_tokens}};
}

OrderedJson block_json(const ReplyBlock& block) {
  switch (block.kind) {
    case Kind::kReasoning:
      // Nothing is signed here; clients expect the member.
      return {{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
    case Kind::kText:
      return {{"type", "text"}, {"text", block.text}};
    case Kind::kCall:
      break;
  }
  return {{"type", "tool_use"},
          {"id", block.call.id},
          {"name", block.call.name},
          {"input", block.text.empty() ? OrderedJson::object() : arguments_object(block.text)}};
}

OrderedJson delta_json(Kind kind, const std::string& piece) {
  switch (kind) {
    case Kind::kReasoning:
      return {{"type", "thinking_delta"}, {"thinking", piece}};
    case Kind::kText:
      return {{"type", "text_delta"}, {"text", piece}};
    case Kind::kCall:
      break;
  }
  return {{"type", "input_json_delta"}, {"partial_json", piece}};
}

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

void add_event(const OrderedJson& event, std::string& events) {
  events += named_event(event["type"].get_ref<const std::string&>(), event);
}

}  // namespace

OrderedJson message_error(int status, const std::string& message) {
  return {{"type", "error"}, {"error", {{"type", error_type(status)}, {"message", message}}}};
}

OrderedJson MessageReply::message_json(const ApiUsage& usage) const {
  return {{"id", head_.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", head_.model},
          {"content", OrderedJson::array()},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr},
          {"usage", usage_of(usage)}};
}

OrderedJson MessageReply::stop_json() const {
  OrderedJson json = {{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
  const auto& stops = head_.stop_sequences;
  if (is_cut_off()) {
    json["stop_reason"] = "max_tokens";
  } else if (finish_reason() == "tool_calls") {
    json["stop_reason"] = "tool_use";
  } else if (std::find(stops.begin(), stops.end(), stop_reason()) != stops.end()) {
    json["stop_reason"] = "stop_sequence";
    json["stop_sequence"] = stop_reason();
  }
  return json;
}

void MessageReply::on_begin(const ApiUsage& usage, std::string& events) {
  add_event({{"type", "message_start"}, {"message", message_json(usage)}}, events);
}

void MessageReply::on_open(const ReplyBlock& block, std::string& events) {
  add_event({{"type", "content_block_start"},
             {"index", block_index()},
             {"content_block", block_json(block)}},
            events);
}

void MessageReply::on_text(const ReplyBlock& block, const std::string& piece, std::string& events) {
  add_event({{"type", "content_block_delta"},
             {"index", block_index()},
             {"delta", delta_json(block.kind, piece)}},
            events);
}

void MessageReply::on_close(const ReplyBlock&, std::string& events) {
  add_event({{"type", "content_block_stop"}, {"index", block_index()}}, events);
}

void MessageReply::on_end(const ApiUsage& usage, std::string& events) {
  add_event({{"type", "message_delta"}, {"delta", stop_json()}, {"usage", usage_of(usage)}},
            events);
  add_event({{"type", "message_stop"}}, events);
}

void MessageReply::on_fail(const ApiError& error, std::string& events) {
  add_event(message_error(error.details().status, error.what()), events);
}

std::string MessageReply::make_whole(const ApiUsage& usage) {
  OrderedJson message = message_json(usage);
  for (const ReplyBlock& block : blocks()) message["content"].push_back(block_json(block));
  message.update(stop_json());
  return json_text(message);
}

}  // namespace halley
