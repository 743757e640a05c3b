// Plans the inputs of linear layers in blocks of 4 and 8 bits (FMPQ): the channel permutation, the
// clip search of the 4-bit blocks, and the smoothing factors.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/packed_weight.h"
#include "halley/models/base/layer_observer.h"
#include "halley/quant/fmpq/plan_blocks.h"
#include "halley/quant/methods/layer_transforms.h"
#include "halley/quant/methods/recipe.h"
#include "halley/quant/solve/input_stats.h"

namespace halley {

/// How a layer's input is rounded in blocks, one plan for all layers that share the input.
struct InputPlan {
  std::vector<int32_t> perm;  // packed input k is channel perm[k]; empty: unpermuted
  int64_t num_s8_blocks = 0;
  int64_t num_blocks = 0;
  int64_t num_s8_inputs = 0;
  float s4_clip = 1;
};

/// The blocks of a point's input in the order that plan_input() gives it; changes nothing. A recipe
/// that does not reorder channels has them in their own order.
BlockPlan plan_point(const Recipe& recipe, LayerInWork& layer, const ScalePoint& point);

/// Plans the blocks of a point's input. Where the preceding weights can be permuted, that is done
/// at once and the plan has no permutation.
InputPlan plan_input(const Recipe& recipe, LayerInWork& layer, const ScalePoint& point);

/// Searches smoothing factors max|x|^a / max|w|^(1 - a) of an input's channels, a = none, 0.3, ...,
/// 0.7: those with the least squared error at the outputs of `weights`, with weights and inputs
/// quantized as the recipe would. Empty: no smoothing is best.
std::vector<float> search_block_factors(const Recipe& recipe, ExecContext& context,
                                        std::span<const ConstMatrix> weights,
                                        const InputStats& stats, std::span<const int32_t> groups);

/// Statistics of the inputs as the kernels will see them: quantized by the plans, in packed order.
class RoundedStats final : public LayerObserver {
 public:
  /// `plans` of the layers to be watched; must outlive the statistics.
  RoundedStats(ExecContext& context, const std::map<const LinearSpec*, InputPlan>& plans);

  void on_linear(const LinearSpec& spec, const LinearOp& op, ConstMatrix x, ConstMatrix y) override;
  void on_keys_values(ConstMatrix, ConstMatrix) override {}

  void finish();
  InputStats& of(const LinearSpec& spec) { return stats_.at(&spec); }

 private:
  ExecContext& context_;
  std::map<const LinearSpec*, QuantParams> params_;
  std::map<const LinearSpec*, InputStatsCollector> collectors_;
  std::map<const LinearSpec*, InputStats> stats_;
  std::vector<float> rounded_;
};

}  // namespace halley
