#include "halley/server/app/work_queue.h"

#include <utility>

namespace halley {

WorkQueue::WorkQueue(int num_threads, size_t num_jobs_max) : num_jobs_max_(num_jobs_max) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { run(); });
  }
}

WorkQueue::~WorkQueue() { stop(); }

bool WorkQueue::push(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_ || jobs_.size() >= num_jobs_max_) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void WorkQueue::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    dropped.swap(jobs_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkQueue::run() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_stopped_ || !jobs_.empty(); });
      if (is_stopped_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace halley
