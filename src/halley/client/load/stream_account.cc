#include "halley/client/load/stream_account.h"

#include <array>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"

namespace halley {
namespace {

// A chunk is small; a server is not trusted to keep it so.
constexpr JsonLimits kChunkLimits = {.depth_max = 32, .num_values_max = 100'000};
constexpr size_t kMessageBytesMax = 200;

bool has_text(const Json& object, const char* name) {
  const auto value = object.find(name);
  if (value == object.end() || value->is_null()) return false;
  return value->is_string() ? !value->get_ref<const std::string&>().empty() : !value->empty();
}

// `choice` is an object.
bool has_content(const Json& choice) {
  if (has_text(choice, "text")) return true;
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return false;
  constexpr std::array<const char*, 4> kFields = {"content", "reasoning_content", "reasoning",
                                                  "tool_calls"};
  for (const char* field : kFields) {
    if (has_text(*delta, field)) return true;
  }
  return false;
}

std::optional<int64_t> count_of(const Json& usage, const char* name) {
  const auto value = usage.find(name);
  constexpr int64_t kCountMax = int64_t{1} << 40;
  if (value == usage.end() || !value->is_number_integer()) return std::nullopt;
  const auto count = value->get<int64_t>();
  if (count < 0 || count > kCountMax) return std::nullopt;
  return count;
}

// {"error": {"message": ...}} or {"error": "..."} or {"message": ...}; empty if there is none.
std::string message_in(const Json& body) {
  if (!body.is_object()) return {};
  const auto error = body.find("error");
  const Json& place = error == body.end() ? body : *error;
  if (place.is_string()) return place.get<std::string>();
  if (!place.is_object()) return {};
  const auto message = place.find("message");
  if (message == place.end() || !message->is_string()) return {};
  return message->get<std::string>();
}

}  // namespace

std::string error_message_of(std::string_view body) {
  std::string message;
  try {
    message = message_in(parse_json(body, "error", kChunkLimits));
  } catch (const InputError&) {
    // Not JSON: a proxy's page. Its beginning says more than the parser's complaint.
    message.clear();
  }
  return quote(message.empty() ? body : std::string_view(message), kMessageBytesMax);
}

bool StreamAccount::fail(std::string error) {
  if (error_.empty()) error_ = std::move(error);
  return false;
}

bool StreamAccount::take_event(std::string_view data, double seconds) {
  if (!error_.empty()) return false;
  if (is_done_) return fail("stream: expected nothing behind [DONE], got an event");
  if (data == "[DONE]") {
    is_done_ = true;
    return true;
  }
  return take_chunk(data, seconds);
}

bool StreamAccount::take_chunk(std::string_view data, double seconds) {
  Json chunk;
  try {
    chunk = parse_json(data, "stream", kChunkLimits);
  } catch (const InputError& error) {
    return fail(error.what());
  }
  if (!chunk.is_object()) return fail(str("stream: expected objects, got ", quote(data)));
  if (const auto error = chunk.find("error"); error != chunk.end() && !error->is_null()) {
    return fail(str("stream: error of the server: ", error_message_of(data)));
  }
  if (const auto usage = chunk.find("usage"); usage != chunk.end() && usage->is_object()) {
    if (const auto count = count_of(*usage, "prompt_tokens")) num_prompt_tokens_ = count;
    if (const auto count = count_of(*usage, "completion_tokens")) num_completion_tokens_ = count;
  }
  const auto choices = chunk.find("choices");
  if (choices == chunk.end() || !choices->is_array() || choices->empty()) return true;
  const Json& choice = choices->front();
  if (!choice.is_object()) return fail("stream: expected choices that are objects, got others");
  const bool is_finishing = has_text(choice, "finish_reason");
  if (has_content(choice)) {
    ++num_content_events_;
    if (last_content_) intervals_.push_back(seconds - *last_content_);
    last_content_ = seconds;
  } else if (!is_finishing) {
    return true;
  }
  if (!first_) first_ = seconds;
  last_ = seconds;
  is_finished_ = is_finished_ || is_finishing;
  return true;
}

std::string StreamAccount::error() const {
  if (!error_.empty()) return error_;
  if (!is_finished_) return "stream: expected a finish_reason, got none before its end";
  if (!is_done_) return "stream: expected [DONE] at its end, got none";
  return {};
}

int64_t StreamAccount::num_output_tokens() const {
  return num_completion_tokens_.value_or(num_content_events_);
}

}  // namespace halley
