// The place where the threads of several ranks wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "halley/core/spin_wait.h"
#include "halley/parallel/base/abort_reason.h"

namespace halley {

/// Shared by a communicator and all that were split from it. All members may be called by any
/// thread.
class ThreadMeeting {
 public:
  /// A waiting thread spins for `spin_time` before it sleeps.
  explicit ThreadMeeting(std::chrono::microseconds spin_time) : spin_time_(spin_time) {}

  /// Called after a sequentially consistent store that others may wait for.
  void announce();

  /// Waits until is_done(), which loads what is announced in sequential consistency, until the
  /// deadline, if there is one, or until an abort. Returns is_done().
  template <typename IsDone>
  bool wait(const IsDone& is_done, std::optional<std::chrono::steady_clock::time_point> deadline) {
    const auto has_ended = [&] { return is_done() || abort_reason_.is_set(); };
    if (!spin_until(has_ended, spin_time_)) {
      std::unique_lock lock(mutex_);
      num_sleeping_.fetch_add(1);
      if (deadline) {
        wake_.wait_until(lock, *deadline, has_ended);
      } else {
        wake_.wait(lock, has_ended);
      }
      num_sleeping_.fetch_sub(1);
    }
    return is_done();
  }

  void abort_all(const std::string& reason);
  const AbortReason& abort_reason() const { return abort_reason_; }

 private:
  const std::chrono::microseconds spin_time_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<int> num_sleeping_{0};
  AbortReason abort_reason_;
};

}  // namespace halley
