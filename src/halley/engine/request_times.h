// Times of a request's phases, for a server's histograms.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

namespace halley {

using TimePoint = std::chrono::steady_clock::time_point;

/// Returns the time; thread-safe and monotonic.
using EngineClock = std::function<TimePoint()>;

/// Times of a request that has ended, in seconds. Phases that it did not reach are absent: a
/// request cancelled while it waited has `queue` and `total` only. The names in brackets are vLLM's
/// histograms.
struct RequestTimes {
  double queue = 0;                   // from the submit to its first step, or to its end
                                      // [request_queue_time]
  std::optional<double> prefill;      // from there to the first token [request_prefill_time]
  std::optional<double> first_token;  // from the submit to the first token [time_to_first_token]
  std::optional<double> decode;       // from the first token to the last [request_decode_time]
  double total = 0;                   // from the submit to the last event [e2e_request_latency]

  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;  // prompt tokens found in the prefix cache at the first run
  int64_t num_output_tokens = 0;
  int64_t num_preemptions = 0;
};

/// Records a request's times while it lives. Not thread-safe.
class RequestTimer {
 public:
  RequestTimer(TimePoint submitted, int64_t num_prompt_tokens) : submitted_(submitted) {
    times_.num_prompt_tokens = num_prompt_tokens;
  }

  void start(TimePoint now, int64_t num_cached_tokens) {
    started_ = now;
    times_.num_cached_tokens = num_cached_tokens;
  }
  void note_preemption() { ++times_.num_preemptions; }
  void note_token(TimePoint now) {
    if (!first_token_) first_token_ = now;
    last_token_ = now;
    ++times_.num_output_tokens;
  }

  int64_t num_cached_tokens() const { return times_.num_cached_tokens; }

  RequestTimes times_at_end(TimePoint now) const {
    RequestTimes times = times_;
    times.queue = seconds(submitted_, started_.value_or(now));
    times.total = seconds(submitted_, now);
    if (!first_token_) return times;
    times.prefill = seconds(*started_, *first_token_);
    times.first_token = seconds(submitted_, *first_token_);
    times.decode = seconds(*first_token_, *last_token_);
    return times;
  }

 private:
  static double seconds(TimePoint begin, TimePoint end) {
    return std::chrono::duration<double>(end - begin).count();
  }

  TimePoint submitted_;
  std::optional<TimePoint> started_, first_token_, last_token_;
  RequestTimes times_;
};

}  // namespace halley
