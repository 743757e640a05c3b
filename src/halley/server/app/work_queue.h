// A thread pool with a bounded job queue.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace halley {

/// Jobs must not throw. Thread-safe.
class WorkQueue {
 public:
  /// At most `num_jobs_max` jobs wait.
  WorkQueue(int num_threads, size_t num_jobs_max);
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// False: the queue is full or has stopped, and `job` was dropped.
  [[nodiscard]] bool push(std::function<void()> job);

  /// Waits for running jobs, drops waiting ones, ends the threads. May be called again, but not
  /// from a job.
  void stop();

 private:
  void run();

  const size_t num_jobs_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool is_stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace halley
