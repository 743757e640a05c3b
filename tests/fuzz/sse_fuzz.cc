// Any bytes as an event stream of a completion: cut into pieces, it must give the same events as
// whole. Only InputError may leave.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/client/http/sse_parser.h"
#include "halley/client/load/stream_account.h"

namespace {

struct Outcome {
  std::vector<std::string> events;
  std::string account_error;
  int64_t num_tokens = 0, num_event_tokens = 0;
  bool is_rejected = false;
};

// In pieces of `piece_size`; the first byte of the input decides it.
Outcome read(std::string_view stream, size_t piece_size) {
  constexpr halley::SseLimits kLimits = {.line_bytes_max = 4096, .event_bytes_max = 8192};
  Outcome outcome;
  halley::StreamAccount account;
  halley::SseParser parser(
      [&](const halley::SseEvent& event) {
        outcome.events.push_back(event.type + "\n" + event.data);
        account.take_event(event.data, static_cast<double>(outcome.events.size()));
      },
      kLimits);
  try {
    while (!stream.empty()) {
      parser.feed(stream.substr(0, piece_size));
      stream.remove_prefix(std::min(piece_size, stream.size()));
    }
  } catch (const halley::InputError&) {
    outcome.is_rejected = true;
  }
  outcome.account_error = account.error();
  outcome.num_tokens = account.num_output_tokens();
  HALLEY_CHECK(outcome.num_tokens >= 0, outcome.num_tokens);
  const auto num_precisions = static_cast<int64_t>(account.precisions().size());
  for (const halley::EventTokens& tokens : account.event_tokens()) {
    HALLEY_CHECK(tokens.count > 0 && tokens.precision < num_precisions, tokens.count,
                 tokens.precision, num_precisions);
    outcome.num_event_tokens += tokens.count;
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = read(stream, stream.size() + 1);
  const Outcome pieces = read(stream, size_t{data[0]} + 1);
  HALLEY_CHECK(whole.is_rejected == pieces.is_rejected, data[0]);
  HALLEY_CHECK(whole.events == pieces.events, data[0]);
  HALLEY_CHECK(whole.account_error == pieces.account_error, whole.account_error);
  HALLEY_CHECK(whole.num_tokens == pieces.num_tokens, whole.num_tokens, pieces.num_tokens);
  HALLEY_CHECK(whole.num_event_tokens == pieces.num_event_tokens, whole.num_event_tokens,
               pieces.num_event_tokens);
  return 0;
}
