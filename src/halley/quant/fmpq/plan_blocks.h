// Which input channels of a layer share blocks, and which blocks need 8 bits, so that the others
// can do with 4 (the channel permutation of COMET's FMPQ).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/quant/solve/input_stats.h"

namespace halley {

struct BlockOptions {
  /// Of all blocks, those of 8 bits at most; one is allowed wherever there are outliers.
  double s8_share_max = 0.25;
  /// An outlier's largest magnitude is at least so many times the median one.
  double outlier_ratio = 6;
  /// Above zero: as few blocks of 8 bits as bring BlockPlan::error to it, from none on (none
  /// without stats.rows). Zero: as many as hold the outliers. Within the share both.
  double error_target = 0;
};

struct BlockPlan {
  std::vector<int32_t> input_perm;  // [K]: packed input k is channel input_perm[k]
  int64_t num_blocks = 0;
  int64_t num_s8_blocks = 0;  // the first ones
  int64_t num_s8_inputs = 0;
  int64_t num_outliers = 0;
  /// Of stats.rows: sum of importance^2 (x - rounded x)^2 over that of importance^2 x^2, the share
  /// of the output that rounding the input loses where channels are independent. 0 without rows.
  double error = 0;
};

/// Sum of squares of each input's weights, over all `weights` [N_i, K] f32, rooted: what an error
/// of the input is multiplied by. [K]
std::vector<float> column_norms(std::span<const ConstMatrix> weights);

/// Blocks of 8 bits take the outliers, then other channels, the largest product of magnitude and
/// `importance` [K] first. The rest is sorted by magnitude, so that a block holds channels of like
/// size: its largest sets the step of all.
BlockPlan plan_blocks(const InputStats& stats, std::span<const float> importance,
                      const BlockOptions& options = {});

/// What part of a model's multiplications has activations of 4 bits.
class S4Work {
 public:
  void add(int64_t N, int64_t K, int64_t num_s8_inputs);
  /// 0 where nothing was added.
  double share() const { return total_ == 0 ? 0 : s4_ / total_; }

 private:
  double s4_ = 0, total_ = 0;
};

}  // namespace halley
