// Predicts how long a step takes in each precision: its roofline time multiplied by a ratio that is
// learnt from the steps that have ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace halley {

/// A predicted duration and how far measured ones lie from it on average.
struct StepEstimate {
  double seconds = 0;
  double deviation = 0;  // mean absolute difference, in seconds

  /// A duration that few steps pass, three deviations above the expected one: 99 % of steps with
  /// normally distributed times stay below it (3 mean absolute deviations are 2.4 standard ones).
  double bound() const { return seconds + 3 * deviation; }
};

/// A ratio is kept for each level of precision and each power of two of rows, since small steps
/// wait for launches and large ones for tensor cores. A size that no step had yet takes the ratio
/// of the nearest size of its level, a level without any the ratio of another level at that size:
/// the roofline knows how much less a lower precision reads. Not thread-safe.
class StepPredictor {
 public:
  /// Levels are numbered from the best precision, 0, to the lowest.
  explicit StepPredictor(size_t num_levels);

  size_t num_levels() const { return ratios_.size(); }

  /// The time of a step of `num_rows` >= 1 rows whose roofline time at this level is
  /// `floor_seconds` > 0. Nothing before the first step was learnt.
  std::optional<StepEstimate> predict(size_t level, int64_t num_rows, double floor_seconds) const;

  /// A step of this size took `seconds`. A step that took more than 8 times as long as predicted
  /// counts as 8 times: one stall of the machine must not decide about the steps after it.
  void learn(size_t level, int64_t num_rows, double floor_seconds, double seconds);

 private:
  static constexpr size_t kNumSizes = 16;  // 1 row, 2, 3 and 4, 5 to 8, ..., more than 16384

  struct Ratio {
    double mean = 0;       // measured seconds / roofline seconds; 0: nothing was measured
    double deviation = 0;  // mean absolute difference from it
  };
  using Ratios = std::array<Ratio, kNumSizes>;

  static size_t size_of(int64_t num_rows);
  static const Ratio* nearest(const Ratios& ratios, size_t size);
  const Ratio* ratio_of(size_t level, size_t size) const;

  std::vector<Ratios> ratios_;  // by level
};

}  // namespace halley
