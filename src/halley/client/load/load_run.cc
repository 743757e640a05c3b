#include "halley/client/load/load_run.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "halley/base/str.h"

namespace halley {
namespace {

using Clock = HttpClient::Clock;
using Seconds = std::chrono::duration<double>;

// Number of bodies that are made ahead.
constexpr size_t kReadyBytesMax = size_t{256} << 20;

// The most informative of the errors of status, events and connection.
std::string error_of(const HttpClientResult& result, const StreamAccount& account) {
  if (result.status != 0 && (result.status < 200 || result.status >= 300)) {
    return str("HTTP status ", result.status, ": ", error_message_of(result.body));
  }
  if (account.has_failed()) return account.error();
  if (!result.error.empty()) return result.error;
  if (!result.is_event_stream) {
    return str("expected an answer of type text/event-stream, got ", error_message_of(result.body));
  }
  return account.error();
}

class LoadRun {
 public:
  LoadRun(HttpClient& client, const std::vector<double>& arrivals,
          const std::function<std::string(size_t)>& make_body, const LoadRunOptions& options,
          const std::function<void(const LoadOutcome&)>& on_outcome)
      : client_(client),
        arrivals_(arrivals),
        make_body_(make_body),
        options_(options),
        on_outcome_(on_outcome),
        outcomes_(arrivals.size()) {}

  LoadResult run() {
    make_first_bodies();
    begin_ = Clock::now();
    schedule_next();
    client_.run();
    return {std::move(outcomes_), now()};
  }

 private:
  // Requests that are due at once should be sent at once: the time to make them is not the
  // server's.
  void make_first_bodies() {
    size_t num_bytes = 0;
    for (size_t i = 0; i < arrivals_.size() && arrivals_[i] <= 0 && num_bytes < kReadyBytesMax;
         ++i) {
      ready_bodies_.push_back(make_body_(i));
      num_bytes += ready_bodies_.back().size();
    }
  }

  std::string body_of(size_t index) {
    return index < ready_bodies_.size() ? std::move(ready_bodies_[index]) : make_body_(index);
  }

  double now() const { return Seconds(Clock::now() - begin_).count(); }

  // One timer at a time: a trace may have a million arrivals.
  void schedule_next() {
    if (num_due_ == arrivals_.size()) return;
    const auto time =
        begin_ + std::chrono::duration_cast<Clock::duration>(Seconds(arrivals_[num_due_]));
    client_.schedule(time, [this] {
      while (num_due_ < arrivals_.size() && arrivals_[num_due_] <= now()) ++num_due_;
      start_due();
      schedule_next();
    });
  }

  void start_due() {
    const bool has_limit = options_.max_concurrency > 0;
    while (num_started_ < num_due_ && (!has_limit || num_running_ < options_.max_concurrency)) {
      start(num_started_++);
    }
  }

  void start(size_t index) {
    ++num_running_;
    HttpClientRequest request{.method = "POST",
                              .target = options_.target,
                              .headers = options_.headers,
                              .body = body_of(index)};
    const auto account = std::make_shared<StreamAccount>();
    const double start = now();
    outcomes_[index].start = start;
    client_.start(request, {[this, account, start](const SseEvent& event) {
                              account->take_event(event.data, now() - start);
                            },
                            [this, account, index](const HttpClientResult& result) {
                              take(*account, result, outcomes_[index]);
                              --num_running_;
                              if (on_outcome_) on_outcome_(outcomes_[index]);
                              start_due();
                            }});
  }

  static void take(const StreamAccount& account, const HttpClientResult& result,
                   LoadOutcome& outcome) {
    outcome.error = error_of(result, account);
    outcome.num_prompt_tokens = account.num_prompt_tokens().value_or(0);
    outcome.num_output_tokens = account.num_output_tokens();
    outcome.has_usage = account.has_usage();
    outcome.time_to_first_token = account.time_to_first_token();
    outcome.latency = account.latency();
    outcome.inter_token_latencies = account.inter_token_latencies();
    outcome.precision_tokens = account.precision_tokens();
    outcome.event_tokens = account.event_tokens();
    outcome.precisions = account.precisions();
  }

  HttpClient& client_;
  const std::vector<double>& arrivals_;
  const std::function<std::string(size_t)>& make_body_;
  const LoadRunOptions& options_;
  const std::function<void(const LoadOutcome&)>& on_outcome_;
  std::vector<std::string> ready_bodies_;  // for the first requests
  std::vector<LoadOutcome> outcomes_;
  Clock::time_point begin_;
  size_t num_due_ = 0, num_started_ = 0;
  int64_t num_running_ = 0;
};

}  // namespace

LoadResult run_load(HttpClient& client, const std::vector<double>& arrivals,
                    const std::function<std::string(size_t)>& make_body,
                    const LoadRunOptions& options,
                    const std::function<void(const LoadOutcome&)>& on_outcome) {
  return LoadRun(client, arrivals, make_body, options, on_outcome).run();
}

}  // namespace halley
