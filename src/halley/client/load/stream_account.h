// What one streamed answer of an OpenAI-compatible server measures: its tokens and their times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// Fed with the data of every event and its time; knows nothing of sockets and clocks. Takes the
/// streams of /v1/completions and /v1/chat/completions.
class StreamAccount {
 public:
  /// @param data     of one event: a JSON object, or "[DONE]"
  /// @param seconds  since the request was sent
  /// False where the stream is in error; what follows is then not read.
  bool take_event(std::string_view data, double seconds);

  /// An event was no chunk, or the server's error.
  bool has_failed() const { return !error_.empty(); }
  /// Empty where the stream was complete: every choice finished, and "[DONE]" behind it.
  std::string error() const;

  /// Of the first event with content; where none has content, of the event that finished. Content
  /// is text, a message's content or reasoning, or a tool call.
  double time_to_first_token() const { return first_.value_or(0); }
  /// Of the last event with content or a finish reason.
  double latency() const { return last_; }
  /// Between events with content.
  const std::vector<double>& inter_token_latencies() const { return intervals_; }
  /// From the server's usage; absent where it sends none.
  std::optional<int64_t> num_prompt_tokens() const { return num_prompt_tokens_; }
  /// From the server's usage, else events with content, which may hold several tokens each.
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
