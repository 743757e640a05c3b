#include "halley/precision/step_predictor.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "halley/base/check.h"

namespace halley {
namespace {

// The weight of the newest step. Some 20 steps forget a change of the context lengths or clocks,
// which is less than a second of decoding.
constexpr double kNewest = 1.0 / 8;
constexpr double kOutlier = 8;

}  // namespace

StepPredictor::StepPredictor(size_t num_levels) : ratios_(num_levels) {
  HALLEY_CHECK(num_levels > 0);
}

size_t StepPredictor::size_of(int64_t num_rows) {
  HALLEY_CHECK(num_rows >= 1, num_rows);
  return std::min<size_t>(kNumSizes - 1, std::bit_width(static_cast<uint64_t>(num_rows - 1)));
}

// If two sizes are equally near, the smaller one counts: its ratio is the larger one as a rule.
const StepPredictor::Ratio* StepPredictor::nearest(const Ratios& ratios, size_t size) {
  for (size_t distance = 0; distance < kNumSizes; ++distance) {
    if (distance <= size && ratios[size - distance].mean > 0) return &ratios[size - distance];
    if (size + distance < kNumSizes && ratios[size + distance].mean > 0) {
      return &ratios[size + distance];
    }
  }
  return nullptr;
}

const StepPredictor::Ratio* StepPredictor::ratio_of(size_t level, size_t size) const {
  if (const Ratio* own = nearest(ratios_.at(level), size)) return own;
  for (const Ratios& others : ratios_) {
    if (const Ratio* other = nearest(others, size)) return other;
  }
  return nullptr;
}

std::optional<StepEstimate> StepPredictor::predict(size_t level, int64_t num_rows,
                                                   double floor_seconds) const {
  HALLEY_CHECK(floor_seconds > 0, floor_seconds);
  const Ratio* ratio = ratio_of(level, size_of(num_rows));
  if (ratio == nullptr) return std::nullopt;
  return StepEstimate{.seconds = ratio->mean * floor_seconds,
                      .deviation = ratio->deviation * floor_seconds};
}

void StepPredictor::learn(size_t level, int64_t num_rows, double floor_seconds, double seconds) {
  HALLEY_CHECK(floor_seconds > 0 && seconds >= 0, floor_seconds, seconds);
  const size_t size = size_of(num_rows);
  const Ratio* known = ratio_of(level, size);
  const double measured = seconds / floor_seconds;
  const double ratio = known == nullptr ? measured : std::min(measured, kOutlier * known->mean);
  Ratio& own = ratios_.at(level)[size];
  if (own.mean == 0) {
    own = {.mean = ratio, .deviation = known == nullptr ? 0 : std::abs(ratio - known->mean)};
    return;
  }
  own.deviation += kNewest * (std::abs(ratio - own.mean) - own.deviation);
  own.mean += kNewest * (ratio - own.mean);
}

}  // namespace halley
