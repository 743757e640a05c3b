#include "halley/engine/generate.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace halley {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Counts live requests. The engine's thread lowers the count, the caller waits.
class LiveCount {
 public:
  void raise() {
    const std::lock_guard lock(mutex_);
    ++num_live_;
  }
  void lower() {
    const std::lock_guard lock(mutex_);
    --num_live_;
    is_lower_.notify_one();  // under the lock: the waiter destroys this object
  }
  int64_t get() {
    const std::lock_guard lock(mutex_);
    return num_live_;
  }
  void wait_below(int64_t count) {
    std::unique_lock lock(mutex_);
    is_lower_.wait(lock, [&] { return num_live_ < count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable is_lower_;
  int64_t num_live_ = 0;
};

void collect(const TokenEvent& event, Clock::time_point begin, GenerateResult& result) {
  if (event.token_id) {
    result.token_ids.push_back(*event.token_id);
    result.token_seconds.push_back(seconds_since(begin));
  }
  result.text += event.text;
  if (event.logprob) {
    result.logprobs.push_back(*event.logprob);
    result.top_logprobs.push_back(event.top_logprobs);
  }
  if (!event.prompt_logprobs.empty()) result.prompt_logprobs = event.prompt_logprobs;
  if (!event.finish_reason) return;
  result.total_seconds = seconds_since(begin);
  if (event.times) result.times = *event.times;
  result.finish_reason = *event.finish_reason;
  result.stop_reason = event.stop_reason;
  result.error = event.error;
}

}  // namespace

std::vector<GenerateResult> generate_all(Engine& engine, std::vector<GenerateRequest> requests,
                                         const GenerateCallback& on_event, RequestId first_id) {
  std::vector<GenerateResult> results(requests.size());
  LiveCount live;
  for (size_t i = 0; i < requests.size(); ++i) {
    while (true) {
      const Clock::time_point begin = Clock::now();
      const auto on_token = [&, i, begin](const TokenEvent& event) {
        collect(event, begin, results[i]);
        if (on_event) on_event(i, event);
        if (event.finish_reason) live.lower();
      };
      const int64_t num_live = live.get();
      live.raise();
      const SubmitResult submit = engine.submit(requests[i], first_id + i, on_token);
      if (submit.status == Submit::kQueued) break;
      live.lower();
      if (submit.status != Submit::kQueueFull || num_live == 0) {
        results[i].submit = submit;
        break;
      }
      live.wait_below(num_live);  // returns at once if one has ended since the count
    }
  }
  live.wait_below(1);
  return results;
}

}  // namespace halley
