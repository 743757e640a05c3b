// Measures one streamed answer of an OpenAI-compatible server: its tokens and their times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/client/load/usage.h"

namespace halley {

/// Tokens of one event with content.
struct EventTokens {
  int64_t event = 0;      // index among the stream's events with content
  int64_t precision = 0;  // index into the stream's names; -1: the server does not tell it
  int64_t count = 0;

  bool operator==(const EventTokens&) const = default;
};

/// Gets the data of every event and its time, independent of sockets and clocks. Supports the
/// streams of /v1/completions and /v1/chat/completions.
class StreamAccount {
 public:
  /// @param data     data of one event: a JSON object, or "[DONE]"
  /// @param seconds  since the request was sent
  /// Returns false if the stream is in error; later events are then ignored.
  bool take_event(std::string_view data, double seconds);

  /// Whether an event was no chunk, or an error of the server.
  bool has_failed() const { return !error_.empty(); }
  /// The error; empty if the stream was complete: every choice finished, then "[DONE]".
  std::string error() const;

  /// The time of the first event with content; without content, of the event with the finish
  /// reason. Content is text, a message's content or reasoning, or a tool call.
  double time_to_first_token() const { return first_.value_or(0); }
  /// The time of the last event with content or a finish reason.
  double latency() const { return last_; }
  /// The times between events with content.
  const std::vector<double>& inter_token_latencies() const { return intervals_; }
  /// Prompt tokens of the server's usage; absent if it sends none.
  std::optional<int64_t> num_prompt_tokens() const { return usage_.prompt_tokens; }
  /// Output tokens of the server's usage, else the number of events with content, which may have
  /// several tokens each.
  int64_t num_output_tokens() const;
  bool has_usage() const { return usage_.completion_tokens.has_value(); }
  /// Output tokens by precision; empty if the server's usage does not tell.
  const PrecisionTokens& precision_tokens() const { return usage_.precision_tokens; }

  /// Tokens of each event with content and precision, by the growth of the usage, in ascending
  /// order of events. Tokens without text of their own count in the next event. Empty unless every
  /// event with content has a usage (`continuous_usage_stats`).
  std::vector<EventTokens> event_tokens() const;
  /// The names that `EventTokens::precision` means; at most 8.
  const std::vector<std::string>& precisions() const { return precisions_; }

 private:
  bool fail(std::string error);
  bool take_chunk(std::string_view data, double seconds);
  void count_tokens();
  int64_t precision_index(const std::string& name);

  std::string error_;
  bool is_done_ = false, is_finished_ = false;
  std::optional<double> first_, last_content_;
  double last_ = 0;
  std::vector<double> intervals_;
  int64_t num_content_events_ = 0;
  Usage usage_;          // the last one of each member
  Usage counted_usage_;  // at the last event with content
  std::vector<EventTokens> event_tokens_;
  std::vector<std::string> precisions_;
  bool has_event_usage_ = true;
};

/// The message of an OpenAI error body, else the beginning of the body.
std::string error_message_of(std::string_view body);

}  // namespace halley
