// Limits the prefill rows of steps, so that steps with decodes take no longer than the ITL target.
#pragma once

#include <cstdint>
#include <limits>

#include "halley/engine/itl_target.h"
#include "halley/engine/scheduler.h"
#include "halley/engine/step_time_model.h"

namespace halley {

/// Learns from the engine's steps and has no clock of its own. Not thread-safe.
///
/// A step with decodes has the prefill rows that take the time up to the target, by StepTimeModel,
/// - but at least kRowsMin, so that prefills advance where the decodes alone take longer;
/// - and none in the first such step and in one of kProbeInterval, which measure the decodes alone:
///   while prompts keep coming there would be no other step that does.
/// Where nobody decodes, a step takes kPrefillSeconds or the target, whichever is longer, and has
/// at least kPrefillRowsMin rows: a request that arrives waits for the end of the step that runs.
/// No step has more than twice the rows of the largest recent one, since its time is not known.
class PrefillLimit {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kRowsMin = 4, kPrefillRowsMin = 32;
  static constexpr int kProbeInterval = 32;
  static constexpr double kPrefillSeconds = 0.1;

  /// The target is not kAutoOnHost.
  explicit PrefillLimit(const ItlTarget& target);

  /// The largest number of prefill rows of the step that is being planned.
  int64_t num_rows(const PrefillOutlook& outlook);
  /// The same for a step that does not measure decodes alone; nothing is changed.
  int64_t expected_rows(const PrefillOutlook& outlook) const;

  /// To be called for every step that ended.
  void note_step(const StepWork& work, double seconds);

  /// The time that a step with decodes should take now, in seconds; 0 where nothing is limited, or
  /// nothing has been measured yet.
  double target_seconds() const;
  /// The last limit on a step with decodes; 0 before there was one.
  int64_t num_rows_last() const { return num_rows_last_; }

 private:
  // Steps with decodes, or those without: they reach different speeds.
  struct Steps {
    int64_t num_rows_min = 0;
    int64_t num_rows_trusted = 2 * num_rows_min;
    StepTimeModel model = {};

    int64_t num_rows(double seconds, int64_t num_past) const;
    void note(const StepWork& work, double seconds);
  };

  ItlTarget target_;
  Steps with_decodes_ = {.num_rows_min = kRowsMin};
  Steps of_prefills_ = {.num_rows_min = kPrefillRowsMin};
  int num_steps_to_probe_ = 0;
  int64_t num_rows_last_ = 0;
};

}  // namespace halley
