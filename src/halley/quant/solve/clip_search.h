// Clip search: the range of each group of weights with the least error at the layer's output.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/quant/solve/grid_rule.h"
#include "halley/quant/solve/input_stats.h"

namespace halley {

struct ClipOptions {
  int num_steps = 20;         // ratios 1, 1 - 1/num_steps, ..., at most num_steps of them
  double ratio_min = 0.5;     // the smallest
  bool is_whole_row = false;  // one ratio for all groups of an output channel
};

/// Makes the rule that rounds with these ratios [N, num_groups].
using ClippedRule = std::function<std::unique_ptr<GridRule>(std::vector<float> clip)>;

/// For each output and group the ratio whose quantization error e has the least e G e^T, where G is
/// the group's block of the inputs' Gram matrix X^T X (from stats.gram where it is there, else from
/// stats.rows). Of equal ratios the largest. Returns [N, num_groups]. w [N, K] f32; the last group
/// may be smaller.
std::vector<float> search_clip(ExecContext& context, ConstMatrix w, const InputStats& stats,
                               int64_t group_size, const ClippedRule& rule,
                               const ClipOptions& options);

}  // namespace halley
