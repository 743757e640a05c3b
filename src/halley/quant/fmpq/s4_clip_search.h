// Clip search for 4-bit activations.
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
  double error = 0;            // its mean squared output error on stats.rows
  double error_unclipped = 0;  // that of ratio 1
};

/// The clipping ratio with the least sum of squares of (quantized x - x) W^T over stats.rows and
/// the outputs of all `weights` [N_i, K] f32, whose inputs are unpermuted; x is quantized as `plan`
/// says and as kernels do. Of equal ratios the largest, so that it is 1 without rows and without
/// 4-bit blocks.
S4Clip search_s4_clip(ExecContext& context, std::span<const ConstMatrix> weights,
                      const InputStats& stats, const BlockPlan& plan,
                      const S4ClipOptions& options = {});

}  // namespace halley
