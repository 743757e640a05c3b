#include "halley/kernels/activation/activation.h"
#include "halley/kernels/moe/moe.h"
#include "halley/models/base/decoder_step.h"

namespace halley {
namespace {

/// One MLP, or one expert, on the rows of x.
void run_mlp(const DecoderStep& step, const LinearOp& gate_up, const LinearOp& down, ConstMatrix x,
             Matrix out) {
  const DecoderConfig& config = step.config;
  const int64_t F = down.in_features();
  const Matrix wide = step.workspace.take(Slot::kGateUp, x.num_rows, gate_up.out_features());
  gate_up.run(step.context, x, wide);
  if (!config.is_gated) {
    apply_activation(step.context, config.activation, wide);
    down.run(step.context, wide, out);
    return;
  }
  const Matrix activated = step.workspace.take(Slot::kMlp, x.num_rows, F);
  gated_activation(step.context, config.activation, wide, activated);
  down.run(step.context, activated, out);
}

/// Rows are gathered expert by expert, each expert runs on its own, and each row's results are
/// summed in the order of the experts' ids: no row depends on another.
void run_experts(const DecoderStep& step, const MlpSpec& spec, const MlpWeights& weights,
                 ConstMatrix x, Matrix out) {
  const auto num_experts = static_cast<int64_t>(weights.gate_up.size());
  const Matrix logits = step.workspace.take(Slot::kRouterLogits, x.num_rows, num_experts);
  weights.router->run(step.context, x, logits);
  const MoeRouting routing = route_tokens(logits, spec.num_experts_per_token, spec.is_normalized);
  const int64_t num_slots = x.num_rows * spec.num_experts_per_token;
  const Matrix slots_in = step.workspace.take(Slot::kExpertIn, num_slots, x.num_cols);
  const Matrix slots_out = step.workspace.take(Slot::kExpertOut, num_slots, x.num_cols);
  gather_slots(step.context, routing, x, slots_in);
  for (size_t expert = 0; expert < weights.gate_up.size(); ++expert) {
    const int64_t begin = routing.expert_begin[expert], end = routing.expert_begin[expert + 1];
    if (begin == end) continue;
    run_mlp(step, weights.gate_up[expert], weights.down[expert], slots_in.rows(begin, end),
            slots_out.rows(begin, end));
  }
  combine_slots(routing, slots_out, out);
}

}  // namespace

void mlp_block(const DecoderStep& step, const MlpSpec& spec, const MlpWeights& weights,
               ConstMatrix x, Matrix out) {
  if (spec.router) {
    run_experts(step, spec, weights, x, out);
  } else {
    run_mlp(step, weights.gate_up[0], weights.down[0], x, out);
  }
}

}  // namespace halley
