// The threads that make the masks of constrained requests.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "halley/engine/mask_job.h"

namespace halley {

/// Which jobs run next: those of one grammar one at a time, grammars in turns.
///
/// A turn ends after about kTurnSeconds, or with the grammar's last job. A grammar that used up its
/// turn waits apart from those that have not had one; the two kinds take turns, so that whoever
/// needs little waits for one long turn at most, and nobody waits for ever. Not thread-safe.
class MaskTurns {
 public:
  using JobPtr = std::shared_ptr<MaskJob>;

  void add(JobPtr job);
  bool is_empty() const { return next_[0].empty() && next_[1].empty(); }
  /// The first job of the grammar whose turn it is. is_empty() is false. The grammar has its turn
  /// until end_turn().
  JobPtr begin_turn();
  /// The job is done; returns the grammar's next one, or null.
  JobPtr next_job(const void* group);
  void end_turn(const void* group, bool was_long);

 private:
  std::unordered_map<const void*, std::deque<JobPtr>> groups_;  // with jobs or a turn
  std::array<std::deque<const void*>, 2> next_;  // without a turn; of [1] the last one was long
  bool is_turn_of_long_ = false;
};

/// Threads of lower priority than the engine's.
class MaskThreads final : public MaskExecutor {
 public:
  static constexpr double kTurnSeconds = 2e-3;
  static constexpr size_t kSliceSteps = 5'000;  // about 0.5 ms

  /// `on_done` is called on the threads after each job that is done; it must not throw.
  MaskThreads(int num_threads, std::function<void()> on_done);
  /// Waits for the slices that run, and drops all jobs.
  ~MaskThreads() override;
  MaskThreads(const MaskThreads&) = delete;
  MaskThreads& operator=(const MaskThreads&) = delete;

  void post(std::shared_ptr<MaskJob> job) override;

 private:
  void run();
  bool run_turn(MaskTurns::JobPtr job);

  const std::function<void()> on_done_;
  std::mutex mutex_;
  std::condition_variable has_job_;
  MaskTurns turns_;
  bool is_stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace halley
