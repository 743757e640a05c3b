// A pool of threads that runs one parallel loop at a time over all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace halley {

/// Threads 1..num_threads-1 are the pool's own; thread 0 is the caller. Workers spin for a short
/// time between loops, since a decode step runs hundreds of them, and then sleep.
/// One caller at a time; a loop body must not start another loop and must not throw.
class ThreadPool {
 public:
  /// num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  /// Calls body(task, thread) once for every task in [0, num_tasks), and returns when all are done.
  /// Each thread starts on a contiguous share, and takes from others when its own is finished.
  /// Which thread runs a task must not change any result.
  void run(int64_t num_tasks, const std::function<void(int64_t task, int thread)>& body);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halley
