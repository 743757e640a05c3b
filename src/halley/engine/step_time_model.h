// Predicts how long a step takes that computes decodes and prefill chunks, from how long the steps
// before it took. Pure: it has no clock.
#pragma once

#include <array>
#include <cstdint>

#include "halley/engine/scheduler.h"

namespace halley {

/// The work of a step, as far as its time depends on it.
struct StepWork {
  int64_t num_decodes = 0;
  int64_t num_prefill_rows = 0;
  int64_t num_prefill_positions = 0;  // that these rows attend to, summed over them

  void add_prefill(int64_t num_past, int64_t num_rows) {
    num_prefill_rows += num_rows;
    num_prefill_positions += num_rows * num_past + num_rows * (num_rows + 1) / 2;
  }
};

StepWork work_of(const StepPlan& plan);

/// seconds = decode_seconds + a * prefill rows + b * positions that they attend to.
///
/// Steps without prefill rows give decode_seconds, as an average that forgets, and 0 until there is
/// one; the others give a and b, by normalized least mean squares: each step moves them by a part
/// of its error. So the model follows contexts that grow and a machine that gets slower. No step
/// counts for more than twice what was predicted for it, so that one that was held up by something
/// else does little.
class StepTimeModel {
 public:
  void note_step(const StepWork& work, double seconds);

  bool has_decode_seconds() const { return decode_seconds_ > 0; }
  double decode_seconds() const { return decode_seconds_; }
  bool has_prefill_seconds() const { return seconds_of_[0] > 0 || seconds_of_[1] > 0; }

  double seconds(const StepWork& work) const;
  /// The number of rows behind `num_past` tokens of one sequence that take `seconds` more than the
  /// decodes, not rounded. Requires has_prefill_seconds().
  double num_rows(double seconds, int64_t num_past) const;

 private:
  using Features = std::array<double, 2>;
  static Features features_of(const StepWork& work);

  double decode_seconds_ = 0;
  Features seconds_of_ = {};  // of a row, and of kPositionUnit positions
};

}  // namespace halley
