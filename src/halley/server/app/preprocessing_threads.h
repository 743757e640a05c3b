// The threads that run the jobs of a PreprocessingQueue.
#pragma once

#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "halley/server/app/preprocessing_queue.h"

namespace halley {

/// Half of the threads, rounded down but at least one, are for long bodies, the others for short
/// ones, and one more compiles grammars. All but those for short bodies give way to every other
/// thread of the process, where the system lets them.
class PreprocessingThreads {
 public:
  /// Jobs must not throw. At most `num_jobs_max` wait.
  PreprocessingThreads(int num_threads, size_t num_jobs_max);
  ~PreprocessingThreads();
  PreprocessingThreads(const PreprocessingThreads&) = delete;
  PreprocessingThreads& operator=(const PreprocessingThreads&) = delete;

  /// As PreprocessingQueue::push().
  [[nodiscard]] bool push(PreprocessingLane lane, const std::string& client,
                          PreprocessingQueue::Job job);

  /// Waits for running jobs, drops waiting ones, ends the threads. May be called again, but not
  /// from a job.
  void stop();

 private:
  void start(PreprocessingLane lane, int num_threads);
  void run(PreprocessingLane lane);

  PreprocessingQueue queue_;
  std::vector<std::thread> threads_;
};

}  // namespace halley
