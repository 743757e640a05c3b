// The search for how far the range of 4-bit activations is clipped.
#pragma once

#include <span>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/quant/fmpq/plan_blocks.h"
#include "halley/quant/solve/input_stats.h"

namespace halley {

struct S4ClipOptions {
  int num_ratios = 13;  // at even distances from 1 down, at least 2
  double ratio_min = 0.7;
};

struct S4Clip {
  float ratio = 1;
  double error = 0;            // its mean squared output error, of stats.rows
  double error_unclipped = 0;  // of ratio 1
};

/// The ratio with the least sum of squares of (round(x) - x) W^T over stats.rows and the outputs of
/// all `weights` [N_i, K] f32, whose inputs are in the layer's order; x is rounded as `plan` says,
/// by the definition that kernels follow. The largest of equal ratios, so that it is 1 without rows
/// and without blocks of 4 bits.
S4Clip search_s4_clip(ExecContext& context, std::span<const ConstMatrix> weights,
                      const InputStats& stats, const BlockPlan& plan,
                      const S4ClipOptions& options = {});

}  // namespace halley
