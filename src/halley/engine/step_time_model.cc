#include "halley/engine/step_time_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace halley {
namespace {

// Scales positions to the size of rows, for least squares. Errors of rows with a longer past than
// this correct the time of positions rather than that of rows: the context is what has changed.
constexpr double kPositionUnit = 256;
constexpr double kDecodeWeight = 0.2;  // of the newest step of decodes alone
constexpr double kPrefillStep = 0.25;  // part of a step's error that is corrected
// Steps of less than this say little of a row's time: their error is mostly that of decode_seconds.
constexpr double kRowsOfHalfStep = 8;

double limited_error(double seconds, double predicted) {
  return std::clamp(seconds - predicted, -predicted, predicted);
}

}  // namespace

StepWork work_of(const StepPlan& plan) {
  StepWork work = {.num_decodes = plan.num_decodes};
  for (const ScheduledSequence& chunk :
       std::span(plan.sequences).subspan(static_cast<size_t>(plan.num_decodes))) {
    work.add_prefill(chunk.num_past, chunk.num_rows);
  }
  return work;
}

StepTimeModel::Features StepTimeModel::features_of(const StepWork& work) {
  return {static_cast<double>(work.num_prefill_rows),
          static_cast<double>(work.num_prefill_positions) / kPositionUnit};
}

double StepTimeModel::seconds(const StepWork& work) const {
  const Features features = features_of(work);
  return decode_seconds_ + seconds_of_[0] * features[0] + seconds_of_[1] * features[1];
}

void StepTimeModel::note_step(const StepWork& work, double seconds) {
  if (work.num_prefill_rows == 0) {
    decode_seconds_ +=
        has_decode_seconds() ? kDecodeWeight * limited_error(seconds, decode_seconds_) : seconds;
    return;
  }
  const Features features = features_of(work);
  const double norm = features[0] * features[0] + features[1] * features[1];
  double gain = 0;
  if (has_prefill_seconds()) {
    const double error = limited_error(seconds, this->seconds(work));
    gain = kPrefillStep * error / (norm + kRowsOfHalfStep * kRowsOfHalfStep);
  } else {
    gain = std::max(0.0, seconds - decode_seconds_) / norm;
  }
  for (size_t i = 0; i < features.size(); ++i) {
    seconds_of_[i] = std::max(0.0, seconds_of_[i] + gain * features[i]);
  }
}

double StepTimeModel::num_rows(double seconds, int64_t num_past) const {
  // rows * (a + b * past) + rows^2 * b / 2 = seconds
  const double position = seconds_of_[1] / kPositionUnit;
  const double row = seconds_of_[0] + position * static_cast<double>(num_past);
  const double root = row + std::sqrt(row * row + 2 * position * seconds);
  return root > 0 ? 2 * seconds / root : std::numeric_limits<double>::infinity();
}

}  // namespace halley
