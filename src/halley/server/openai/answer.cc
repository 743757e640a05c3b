#include "halley/server/openai/answer.h"

#include <algorithm>
#include <utility>

#include "halley/base/str.h"

namespace halley {
namespace {

constexpr const char* kFramedText = "?";  // that a ChunkWriter replaces

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
  if (!choice.reasoning.empty()) {
    for (const char* name : kReasoningMembers) delta[name] = choice.reasoning;
  }
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
  if (!choice.token_ids.empty()) json["token_ids"] = choice.token_ids;
  if (!choice.prompt_token_ids.empty() && !head.is_chat) {
    json["prompt_token_ids"] = choice.prompt_token_ids;
  }
  return json;
}

}  // namespace

OrderedJson usage_json(const ApiUsage& usage) {
  OrderedJson json = {{"prompt_tokens", usage.num_prompt_tokens},
                      {"completion_tokens", usage.num_completion_tokens},
                      {"total_tokens", usage.num_prompt_tokens + usage.num_completion_tokens},
                      {"prompt_tokens_details", {{"cached_tokens", usage.num_cached_tokens}}}};
  if (usage.has_reasoning) {
    json["completion_tokens_details"]["reasoning_tokens"] = usage.num_reasoning_tokens;
  }
  if (usage.has_precisions) {
    json["completion_tokens_details"]["precision"] = {
        {"full", usage.num_completion_tokens - usage.num_low_tokens},
        {"low", usage.num_low_tokens}};
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
  if (!delta.prompt_token_ids.empty() && head.is_chat) {
    json["prompt_token_ids"] = delta.prompt_token_ids;
  }
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
  ChoiceDelta delta;
  delta.text = kFramedText;
  text_ = frame_of(head, has_null_usage, delta);
  std::swap(delta.text, delta.reasoning);
  if (head.is_chat) reasoning_ = frame_of(head, has_null_usage, delta);
}

ChunkWriter::Frame ChunkWriter::frame_of(const AnswerHead& head, bool has_null_usage,
                                         const ChoiceDelta& delta) {
  // Cut from a normal chunk, so that only one function has the format.
  OrderedJson chunk = answer_chunk(head, /*choice_index=*/0, delta);
  if (has_null_usage) chunk["usage"] = nullptr;
  const std::string event = sse_event(chunk);
  const std::string index_key = R"("choices":[{"index":)";
  const std::string text_value = str(":\"", kFramedText, "\"");
  // The model's name may contain anything: the search starts after it.
  const size_t index = event.rfind(index_key) + index_key.size();
  size_t value = event.find(text_value, index) + 1;
  Frame frame = {.before_index = event.substr(0, index),
                 .before_text = event.substr(index + 1, value - index - 1),
                 .behind_texts = {}};
  while (true) {
    const size_t behind = value + text_value.size() - 1;
    const size_t next = event.find(text_value, behind);
    const bool is_last = next == std::string::npos;
    value = is_last ? event.size() : next + 1;
    frame.behind_texts.push_back(event.substr(behind, value - behind));
    if (is_last) return frame;
  }
}

bool ChunkWriter::append(int64_t choice_index, const ChoiceDelta& delta, std::string& out) const {
  const bool is_one_text = delta.text.empty() != delta.reasoning.empty() && delta.calls.empty() &&
                           delta.logprobs.is_null() && delta.token_ids.empty() &&
                           delta.finish_reason.empty() && delta.stop_reason.empty();
  if (!is_one_text) return false;
  const Frame& frame = delta.text.empty() ? reasoning_ : text_;
  const std::string& text = delta.text.empty() ? delta.reasoning : delta.text;
  out.append(frame.before_index).append(std::to_string(choice_index)).append(frame.before_text);
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  const std::string json = is_plain ? std::string() : json_text(text);
  for (const std::string& behind : frame.behind_texts) {
    if (is_plain) {
      out.append(1, '"').append(text).append(1, '"');
    } else {
      out.append(json);
    }
    out.append(behind);
  }
  return true;
}

std::string json_text(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string sse_event(const OrderedJson& json) { return "data: " + json_text(json) + "\n\n"; }

}  // namespace halley
