// A few threads that take jobs from a bounded queue.
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
  /// `num_jobs_max` wait at most.
  WorkQueue(int num_threads, size_t num_jobs_max);
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// False: the queue is full or has stopped, and `job` was dropped.
  [[nodiscard]] bool push(std::function<void()> job);

  /// Finishes what runs, drops what waits, ends the threads. More than once too, but not from a
  /// job.
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
