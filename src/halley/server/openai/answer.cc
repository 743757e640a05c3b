#include "halley/server/openai/answer.h"

#include <algorithm>
#include <utility>

namespace halley {
namespace {

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson() : OrderedJson(text);
}

OrderedJson call_json(const ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

OrderedJson delta_json(const ChoiceDelta& choice) {
  OrderedJson delta = OrderedJson::object();
  if (!choice.text.empty()) delta["content"] = choice.text;
  if (choice.calls.empty()) return delta;
  delta["tool_calls"] = OrderedJson::array();
  for (const auto& [index, call] : choice.calls) {
    OrderedJson json = {{"index", index}};
    if (call.name.empty()) {  // a later piece
      json["function"] = {{"arguments", call.arguments}};
    } else {
      json.update(call_json(call));
    }
    delta["tool_calls"].push_back(std::move(json));
  }
  return delta;
}

OrderedJson choice_json(const AnswerHead& head, int64_t index, const ChoiceDelta& choice) {
  OrderedJson json = {{"index", index}};
  if (head.is_chat) {
    json["delta"] = delta_json(choice);
  } else {
    json["text"] = choice.text;
  }
  json["logprobs"] = choice.logprobs;
  json["finish_reason"] = text_or_null(choice.finish_reason);
  json["stop_reason"] = text_or_null(choice.stop_reason);
  return json;
}

}  // namespace

OrderedJson usage_json(const ApiUsage& usage) {
  OrderedJson json = {{"prompt_tokens", usage.num_prompt_tokens},
                      {"completion_tokens", usage.num_completion_tokens},
                      {"total_tokens", usage.num_prompt_tokens + usage.num_completion_tokens},
                      {"prompt_tokens_details", {{"cached_tokens", usage.num_cached_tokens}}}};
  if (usage.has_precisions) {
    json["completion_tokens_details"] = {
        {"precision",
         {{"full", usage.num_completion_tokens - usage.num_low_tokens},
          {"low", usage.num_low_tokens}}}};
  }
  return json;
}

OrderedJson answer_head(const AnswerHead& head, bool is_chunk) {
  const char* object = "text_completion";  // chunks of completions have the same name
  if (head.is_chat) object = is_chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", head.id}, {"object", object}, {"created", head.created_s}, {"model", head.model}};
}

void ChoiceDelta::join_calls() {
  std::vector<IndexedToolCall> pieces;
  pieces.swap(calls);
  for (IndexedToolCall& piece : pieces) {
    if (!calls.empty() && calls.back().index == piece.index) {
      calls.back().call.arguments += piece.call.arguments;
    } else {
      calls.push_back(std::move(piece));
    }
  }
}

OrderedJson answer_chunk(const AnswerHead& head, int64_t choice_index, const ChoiceDelta& delta) {
  OrderedJson json = answer_head(head, /*is_chunk=*/true);
  json["choices"] = OrderedJson::array();
  json["choices"].push_back(choice_json(head, choice_index, delta));
  return json;
}

OrderedJson role_chunk(const AnswerHead& head, int64_t choice_index) {
  OrderedJson json = answer_chunk(head, choice_index, {});
  json["choices"][0]["delta"] = {{"role", "assistant"}, {"content", ""}};
  return json;
}

OrderedJson usage_chunk(const AnswerHead& head, const ApiUsage& usage) {
  OrderedJson json = answer_head(head, /*is_chunk=*/true);
  json["choices"] = OrderedJson::array();
  json["usage"] = usage_json(usage);
  return json;
}

ChunkWriter::ChunkWriter(const AnswerHead& head, bool has_null_usage) {
  // Cut from a normal chunk, so that only one function has the format.
  const std::string text = "?";
  ChoiceDelta delta;
  delta.text = text;
  OrderedJson chunk = answer_chunk(head, /*choice_index=*/0, delta);
  if (has_null_usage) chunk["usage"] = nullptr;
  const std::string event = sse_event(chunk);
  const std::string index_key = R"("choices":[{"index":)";
  const std::string text_value = R"(":"?")";
  // The model's name may contain anything: the search starts after it.
  const size_t index = event.rfind(index_key) + index_key.size();
  const size_t value = event.find(text_value, index) + 2;
  before_index_ = event.substr(0, index);
  before_text_ = event.substr(index + 1, value - index - 1);
  behind_text_ = event.substr(value + text.size() + 2);
}

bool ChunkWriter::append(int64_t choice_index, const ChoiceDelta& delta, std::string& out) const {
  const bool is_text = !delta.text.empty() && delta.calls.empty() && delta.logprobs.is_null() &&
                       delta.finish_reason.empty() && delta.stop_reason.empty();
  if (!is_text) return false;
  out.append(before_index_).append(std::to_string(choice_index)).append(before_text_);
  const bool is_plain = std::all_of(delta.text.begin(), delta.text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (is_plain) {
    out.append(1, '"').append(delta.text).append(1, '"');
  } else {
    out.append(json_text(delta.text));
  }
  out.append(behind_text_);
  return true;
}

std::string json_text(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string sse_event(const OrderedJson& json) { return "data: " + json_text(json) + "\n\n"; }

}  // namespace halley
