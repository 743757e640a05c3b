// Measures one streamed answer of an OpenAI-compatible server: its tokens and their times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

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
  std::optional<int64_t> num_prompt_tokens() const { return num_prompt_tokens_; }
  /// Output tokens of the server's usage, else the number of events with content, which may have
  /// several tokens each.
  int64_t num_output_tokens() const;
  bool has_usage() const { return num_completion_tokens_.has_value(); }

 private:
  bool fail(std::string error);
  bool take_chunk(std::string_view data, double seconds);

  std::string error_;
  bool is_done_ = false, is_finished_ = false;
  std::optional<double> first_, last_content_;
  double last_ = 0;
  std::vector<double> intervals_;
  int64_t num_content_events_ = 0;
  std::optional<int64_t> num_prompt_tokens_, num_completion_tokens_;
};

/// The message of an OpenAI error body, else the beginning of the body.
std::string error_message_of(std::string_view body);

}  // namespace halley
