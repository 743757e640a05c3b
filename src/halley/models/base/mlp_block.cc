#include "halley/kernels/activation/activation.h"
#include "halley/kernels/moe/moe.h"
#include "halley/models/base/decoder_step.h"
#include "halley/models/base/rank_sums.h"

namespace halley {
namespace {

/// One MLP, or one expert (`index` is its number), on the rows of x.
void run_mlp(const DecoderStep& step, const MlpSpec& spec, const MlpWeights& weights, size_t index,
             ConstMatrix x, Matrix out) {
  const DecoderConfig& config = step.config;
  const LinearOp& gate_up = weights.gate_up[index];
  const LinearOp& down = weights.down[index];
  const int64_t F = gate_up.out_features() / (config.is_gated ? 2 : 1);
  const Matrix wide = step.workspace.take(Slot::kGateUp, x.num_rows, gate_up.out_features());
  run_linear(step, spec.gate_up[index], gate_up, x, wide);
  step.finish("gate_up");
  if (!config.is_gated) {
    apply_activation(step.context, config.activation, wide);
    step.finish("activation");
    run_input_slice(step, spec.down[index], down, wide, out);
    step.finish("down");
    return;
  }
  const Matrix activated = step.workspace.take(Slot::kMlp, x.num_rows, F);
  gated_activation(step.context, config.activation, wide, activated);
  step.finish("activation");
  run_input_slice(step, spec.down[index], down, activated, out);
  step.finish("down");
}

/// Rows are gathered expert by expert, each expert runs on its own, and each row's results are
/// summed in the order of the experts' ids: no row depends on another. A rank with whole experts
/// adds up its own alone.
void run_experts(const DecoderStep& step, const MlpSpec& spec, const MlpWeights& weights,
                 ConstMatrix x, Matrix out) {
  const Matrix logits =
      step.workspace.take(Slot::kRouterLogits, x.num_rows, spec.router->out_features());
  run_linear(step, *spec.router, *weights.router, x, logits);
  MoeRouting routing = route_tokens(logits, spec.num_experts_per_token, spec.is_normalized);
  const auto num_experts = static_cast<int64_t>(weights.gate_up.size());
  keep_experts(routing, spec.first_expert, spec.first_expert + num_experts);
  const auto num_slots = static_cast<int64_t>(routing.slot_row.size());
  const Matrix slots_in = step.workspace.take(Slot::kExpertIn, num_slots, x.num_cols);
  const Matrix slots_out = step.workspace.take(Slot::kExpertOut, num_slots, x.num_cols);
  gather_slots(step.context, routing, x, slots_in);
  step.finish("router");
  for (size_t expert = 0; expert < weights.gate_up.size(); ++expert) {
    const int64_t begin = routing.expert_begin[expert], end = routing.expert_begin[expert + 1];
    if (begin == end) continue;
    run_mlp(step, spec, weights, expert, slots_in.rows(begin, end), slots_out.rows(begin, end));
  }
  combine_slots(routing, slots_out, out);
  step.finish("combine");
}

}  // namespace

void mlp_block(const DecoderStep& step, const MlpSpec& spec, const MlpWeights& weights,
               ConstMatrix x, Matrix out) {
  if (spec.router) {
    run_experts(step, spec, weights, x, out);
  } else {
    run_mlp(step, spec, weights, 0, x, out);
  }
  if (step.ranks != nullptr) sum_over_ranks(*step.ranks, out);
}

}  // namespace halley
