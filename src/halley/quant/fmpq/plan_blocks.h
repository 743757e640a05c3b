// Plans which input channels of a layer share a block and which blocks are quantized to 8 bits, so
// that 4 bits suffice for the others (the channel permutation of COMET's FMPQ).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/quant/solve/input_stats.h"

namespace halley {

struct BlockOptions {
  /// The largest share of 8-bit blocks; one is always allowed where there are outliers.
  double s8_share_max = 0.25;
  /// An outlier's largest magnitude is at least so many times the median one.
  double outlier_ratio = 6;
  /// Above zero: the fewest 8-bit blocks that bring BlockPlan::error to it (none without
  /// stats.rows). Zero: as many as hold the outliers. s8_share_max limits both.
  double error_target = 0;
};

struct BlockPlan {
  std::vector<int32_t> input_perm;  // [K]: packed input k is channel input_perm[k]
  int64_t num_blocks = 0;
  int64_t num_s8_blocks = 0;  // the first ones
  int64_t num_s8_inputs = 0;
  int64_t num_outliers = 0;
  /// Relative output error that quantizing the input causes where channels are independent: the sum
  /// of importance^2 (x - quantized x)^2 over that of importance^2 x^2, on stats.rows. 0 without
  /// rows.
  double error = 0;
};

/// The magnitude from which on a channel is an outlier: `outlier_ratio` times the median of those
/// `magnitudes` (largest |x| of each channel) that are above zero. 0 where none is.
double outlier_limit(std::span<const float> magnitudes,
                     double outlier_ratio = BlockOptions().outlier_ratio);

/// The 2-norm of each weight column over all `weights` [N_i, K] f32: the gain of an error of that
/// input. [K]
std::vector<float> column_norms(std::span<const ConstMatrix> weights);

/// 8-bit blocks take the outliers first, then the channels with the largest magnitude times
/// `importance` [K]. The rest is sorted by magnitude, so that a block holds channels of similar
/// size: the largest sets the step size of all.
BlockPlan plan_blocks(const InputStats& stats, std::span<const float> importance,
                      const BlockOptions& options = {});

/// Accumulates the share of a model's multiply-accumulates with 4-bit activations.
class S4Work {
 public:
  void add(int64_t N, int64_t K, int64_t num_s8_inputs);
  /// 0 where nothing was added.
  double share() const { return total_ == 0 ? 0 : s4_ / total_; }

 private:
  double s4_ = 0, total_ = 0;
};

}  // namespace halley
