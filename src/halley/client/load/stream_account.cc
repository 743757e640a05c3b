#include "halley/client/load/stream_account.h"

#include <algorithm>
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
  Usage usage;
  if (const auto value = chunk.find("usage"); value != chunk.end()) usage = read_usage(*value);
  if (usage.prompt_tokens) usage_.prompt_tokens = usage.prompt_tokens;
  if (usage.completion_tokens) usage_.completion_tokens = usage.completion_tokens;
  if (!usage.precision_tokens.empty()) usage_.precision_tokens = usage.precision_tokens;
  const auto choices = chunk.find("choices");
  if (choices == chunk.end() || !choices->is_array() || choices->empty()) return true;
  const Json& choice = choices->front();
  if (!choice.is_object()) return fail("stream: expected choices that are objects, got others");
  const bool is_finishing = has_text(choice, "finish_reason");
  if (has_content(choice)) {
    has_event_usage_ = has_event_usage_ && usage.completion_tokens.has_value();
    if (has_event_usage_) count_tokens();
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

void StreamAccount::count_tokens() {
  int64_t rest = *usage_.completion_tokens - counted_usage_.completion_tokens.value_or(0);
  for (const auto& [name, count] : usage_.precision_tokens) {
    const int64_t growth = count - counted_usage_.precision_tokens[name];
    if (growth <= 0) continue;
    event_tokens_.push_back({num_content_events_, precision_index(name), growth});
    rest -= growth;
  }
  if (rest > 0) event_tokens_.push_back({num_content_events_, -1, rest});
  counted_usage_ = usage_;
}

int64_t StreamAccount::precision_index(const std::string& name) {
  constexpr size_t kPrecisionsMax = 8;  // a server might send other names in every event
  const auto found = std::find(precisions_.begin(), precisions_.end(), name);
  const auto index = found - precisions_.begin();
  if (found != precisions_.end()) return index;
  if (precisions_.size() == kPrecisionsMax) return -1;
  precisions_.push_back(name);
  return index;
}

std::vector<EventTokens> StreamAccount::event_tokens() const {
  return has_event_usage_ ? event_tokens_ : std::vector<EventTokens>();
}

std::string StreamAccount::error() const {
  if (!error_.empty()) return error_;
  if (!is_finished_) return "stream: expected a finish_reason, got none before its end";
  if (!is_done_) return "stream: expected [DONE] at its end, got none";
  return {};
}

int64_t StreamAccount::num_output_tokens() const {
  return usage_.completion_tokens.value_or(num_content_events_);
}

}  // namespace halley
