// Counts of the precisions that an engine's steps ran in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "halley/engine/request_times.h"
#include "halley/precision/precision_policy.h"

namespace halley {

/// The level changed.
struct PrecisionSwitch {
  TimePoint time = {};  // by the engine's clock
  size_t level = 0;     // the new one
  PrecisionReason reason = PrecisionReason::kHolds;
};

/// Totals of steps for which a time was predicted.
struct PredictedSteps {
  double predicted_seconds = 0, measured_seconds = 0;

  void add(double predicted, double measured) {
    predicted_seconds += predicted;
    measured_seconds += measured;
  }
};

/// Totals of the steps that ran in one precision.
struct LevelStats {
  std::string name;  // PrecisionLevel::name
  int64_t num_steps = 0;
  int64_t num_tokens = 0;  // chosen by these steps
  double seconds = 0;
  PredictedSteps predicted = {};
  /// The first steps after a switch to it, which are among `predicted` too.
  PredictedSteps switched = {};
};

/// Empty for a model in one precision, but for the counts of violations.
struct PrecisionStats {
  std::vector<LevelStats> levels;  // the best first
  size_t level = 0;                // of the last step
  PrecisionReason reason = PrecisionReason::kFixed;
  int64_t num_switches = 0;
  std::vector<PrecisionSwitch> last_switches;  // the oldest first; at most kNumSwitchesMax
  static constexpr size_t kNumSwitchesMax = 32;
  int64_t num_late_first_tokens = 0;  // requests whose first token came after their TTFT
  int64_t num_slow_requests = 0;      // that ended with a mean TPOT above their limit
};

}  // namespace halley
