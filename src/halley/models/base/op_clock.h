// Times of a step's operations, one after the other, for profiling.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "halley/models/base/causal_lm.h"

namespace halley {

/// Each operation lasts from the end of the one before to the call that names it, so that the times
/// of a step leave out nothing. One thread.
class OpClock {
 public:
  OpClock() : start_(Clock::now()), last_(start_) {}

  /// Sets the prefix of all later names: "layers.3.".
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  void finish(const char* name) {
    const Clock::time_point now = Clock::now();
    times_.push_back({.name = prefix_ + name,
                      .start_us = microseconds(last_ - start_),
                      .duration_us = microseconds(now - last_)});
    last_ = Clock::now();  // bookkeeping is not counted
  }

  std::vector<OpTime> take() { return std::move(times_); }

 private:
  using Clock = std::chrono::steady_clock;
  static double microseconds(Clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  }

  Clock::time_point start_, last_;
  std::string prefix_;
  std::vector<OpTime> times_;
};

}  // namespace halley
