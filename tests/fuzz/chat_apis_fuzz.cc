// Parses any text as the body of a chat of another API, and writes its reply. Only ApiError may
// leave, what is taken must be in the ranges that the engine demands, and what is written is JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "halley/base/check.h"
#include "halley/json/json.h"
#include "halley/sampling/base/sampling_params.h"
#include "halley/server/anthropic/messages_api.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/reply.h"
#include "halley/server/responses/responses_api.h"

namespace {

constexpr int64_t kVocabSize = 1000;

void check_request(halley::ApiRequest& request) {
  HALLEY_CHECK(request.num_sequences() == 1, request.num_sequences());
  HALLEY_CHECK(!request.messages.empty());
  request.sampling.max_tokens = request.max_tokens.value_or(INT64_MAX);
  halley::check_sampling_params(request.sampling, kVocabSize);
}

// All that a model may write: reasoning, text and a call whose arguments are the body itself.
void write_reply(halley::Reply& reply, bool is_stream, std::string_view body) {
  halley::ChoiceDelta delta;
  delta.reasoning = "hm";
  delta.text = body.substr(0, body.size() / 2);
  delta.calls = {{0, {"1", "f", std::string(body)}}};
  delta.finish_reason = "tool_calls";
  if (!is_stream) {
    HALLEY_CHECK(halley::OrderedJson::parse(reply.whole(delta, {})).is_object());
    return;
  }
  std::string events = reply.begin({});
  events += reply.add(delta);
  events += reply.end({});
  HALLEY_CHECK(events.ends_with("\n\n"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const halley::RequestRules rules = {.sampling = {},
                                      .vocab_size = kVocabSize,
                                      .template_reads_effort = true,
                                      .has_reasoning_parser = true};
  static const halley::ResponsesApi kResponses({.num_responses_max = 2, .bytes_max = 1 << 20});
  static const halley::MessagesApi kMessages;
  for (const halley::ChatApi* api : {static_cast<const halley::ChatApi*>(&kResponses),
                                     static_cast<const halley::ChatApi*>(&kMessages)}) {
    try {
      halley::ParsedChat parsed =
          api->parse(body, {.rules = rules, .client = "c", .default_model = "m", .now_s = 0});
      check_request(parsed.request);
      write_reply(*parsed.reply, parsed.request.is_stream, body);
    } catch (const halley::ApiError& error) {
      const int status = error.details().status;
      HALLEY_CHECK(status == 400 || status == 404, error.what());
      HALLEY_CHECK(!api->error_body(error).empty());
    }
  }
  return 0;
}
