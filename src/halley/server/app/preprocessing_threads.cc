#include "halley/server/app/preprocessing_threads.h"

#include <algorithm>
#include <utility>

#include "halley/base/thread_priority.h"

namespace halley {

PreprocessingThreads::PreprocessingThreads(int num_threads, size_t num_jobs_max)
    : queue_(num_jobs_max) {
  const int num_long = std::max(1, num_threads / 2);
  start(PreprocessingLane::kShort, std::max(1, num_threads - num_long));
  start(PreprocessingLane::kLong, num_long);
  start(PreprocessingLane::kConstraint, 1);
}

PreprocessingThreads::~PreprocessingThreads() { stop(); }

void PreprocessingThreads::start(PreprocessingLane lane, int num_threads) {
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this, lane] { run(lane); });
  }
}

bool PreprocessingThreads::push(PreprocessingLane lane, const std::string& client,
                                PreprocessingQueue::Job job) {
  return queue_.push(lane, client, std::move(job));
}

void PreprocessingThreads::stop() {
  queue_.stop();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void PreprocessingThreads::run(PreprocessingLane lane) {
  if (lane != PreprocessingLane::kShort) lower_thread_priority();
  while (auto turn = queue_.wait_for_turn(lane)) {
    turn->job();
    turn->job = nullptr;
    queue_.end_turn(lane, turn->client);
  }
}

}  // namespace halley
