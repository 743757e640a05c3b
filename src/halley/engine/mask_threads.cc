#include "halley/engine/mask_threads.h"

#include <chrono>
#include <utility>

#include "halley/base/thread_priority.h"

namespace halley {

void MaskTurns::add(JobPtr job) {
  const void* group = job->group();
  const auto [it, is_new] = groups_.try_emplace(group);
  it->second.push_back(std::move(job));
  if (is_new) next_[0].push_back(group);
}

MaskTurns::JobPtr MaskTurns::begin_turn() {
  std::deque<const void*>* from = &next_[is_turn_of_long_ ? 1 : 0];
  is_turn_of_long_ = !is_turn_of_long_;
  if (from->empty()) from = &next_[is_turn_of_long_ ? 1 : 0];
  const void* group = from->front();
  from->pop_front();
  return groups_.at(group).front();
}

MaskTurns::JobPtr MaskTurns::next_job(const void* group) {
  std::deque<JobPtr>& jobs = groups_.at(group);
  jobs.pop_front();
  return jobs.empty() ? nullptr : jobs.front();
}

void MaskTurns::end_turn(const void* group, bool was_long) {
  const auto it = groups_.find(group);
  if (it->second.empty()) {
    groups_.erase(it);
  } else {
    next_[was_long ? 1 : 0].push_back(group);
  }
}

MaskThreads::MaskThreads(int num_threads, std::function<void()> on_done)
    : on_done_(std::move(on_done)) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { run(); });
  }
}

MaskThreads::~MaskThreads() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  has_job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void MaskThreads::post(std::shared_ptr<MaskJob> job) {
  {
    const std::lock_guard lock(mutex_);
    turns_.add(std::move(job));
  }
  has_job_.notify_one();
}

void MaskThreads::run() {
  lower_thread_priority();
  while (true) {
    MaskTurns::JobPtr job;
    {
      std::unique_lock lock(mutex_);
      has_job_.wait(lock, [&] { return is_stopped_ || !turns_.is_empty(); });
      if (is_stopped_) return;
      job = turns_.begin_turn();
    }
    const void* group = job->group();
    const bool was_long = run_turn(std::move(job));
    const std::lock_guard lock(mutex_);
    turns_.end_turn(group, was_long);
    // This thread takes the turn that it has added, if no other does.
  }
}

// Returns whether the time of the turn was used up.
bool MaskThreads::run_turn(MaskTurns::JobPtr job) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(kTurnSeconds);
  const void* group = job->group();
  while (job != nullptr) {
    const bool is_done = job->run(kSliceSteps);
    if (is_done) on_done_();
    const std::lock_guard lock(mutex_);
    if (is_done) job = turns_.next_job(group);
    if (is_stopped_) return false;
    if (Clock::now() >= end) return true;
  }
  return false;
}

}  // namespace halley
