#include "halley/kernels/attention/attention.h"
#include "halley/kernels/norm/norm.h"
#include "halley/models/base/decoder_step.h"
#include "halley/models/base/low_rank.h"
#include "halley/models/base/rank_sums.h"

namespace halley {

void apply_norm(const DecoderStep& step, const NormWeights& norm, ConstMatrix x, Matrix y) {
  const DecoderConfig& config = step.config;
  if (config.norm_kind == NormKind::kLayer) {
    const float* bias = norm.bias.empty() ? nullptr : norm.bias.data();
    layer_norm(step.context, x, norm.weight.data(), bias, config.norm_epsilon, y);
  } else {
    rms_norm(step.context, x, norm.weight.data(), config.norm_weight_offset, config.norm_epsilon,
             y);
  }
}

void compute_angles(ExecContext& context, const DecoderConfig& config,
                    std::span<const int32_t> positions, std::vector<RopeAngles>& angles) {
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    const RopeSpec& rope = config.ropes[i];
    compute_rope_angles(context, positions, rope.inv_freq, rope.attention_factor, angles[i]);
    angles[i].is_interleaved = rope.is_interleaved;
  }
}

void run_linear(const DecoderStep& step, const LinearSpec& spec, const LinearOp& op, ConstMatrix x,
                Matrix y) {
  op.run(step.context, x, y);
  if (!step.batch.adapters.empty()) add_low_rank(step, spec, x, y);
  if (step.observer != nullptr) step.observer->on_linear(spec, op, x, y);
}

void attention_block(const DecoderStep& step, const LayerSpec& spec, const LayerWeights& weights,
                     const KvLayerView& cache, ConstMatrix x, Matrix out) {
  const DecoderConfig& config = step.config;
  const int64_t H = config.num_heads, J = config.num_kv_heads, D = config.head_dim;
  const Matrix qkv = step.workspace.take(Slot::kQkv, step.num_rows(), (H + 2 * J) * D);
  run_linear(step, spec.qkv, weights.qkv, x, qkv);
  step.finish("qkv");
  const Matrix q = qkv.cols(0, H * D);
  const Matrix k = qkv.cols(H * D, (H + J) * D);
  const Matrix v = qkv.cols((H + J) * D, (H + 2 * J) * D);
  if (spec.q_norm) {
    rms_norm_heads(step.context, q, config.q_norm_size(), weights.q_norm.weight.data(),
                   config.norm_weight_offset, config.norm_epsilon);
  }
  if (spec.k_norm) {
    rms_norm_heads(step.context, k, config.k_norm_size(), weights.k_norm.weight.data(),
                   config.norm_weight_offset, config.norm_epsilon);
  }
  if (spec.q_norm || spec.k_norm) step.finish("qk_norm");
  if (spec.rope_index >= 0) {
    const RopeAngles& angles = step.angles[static_cast<size_t>(spec.rope_index)];
    apply_rope(step.context, angles, H, D, q);
    apply_rope(step.context, angles, J, D, k);
    step.finish("rope");
  }
  if (step.observer != nullptr) step.observer->on_keys_values(k, v);
  write_kv(step.context, cache, step.batch.sequences, k, v);
  step.finish("kv_write");
  const Matrix attended = step.workspace.take(Slot::kAttention, step.num_rows(), H * D);
  const AttentionProblem problem = {.num_heads = H,
                                    .scale = config.attention_scale,
                                    .soft_cap = config.attention_soft_cap,
                                    .window = spec.window};
  paged_attention(step.context, problem, cache, step.batch.sequences, q, attended);
  step.finish("attention");
  run_input_slice(step, spec.o, weights.o, attended, out);
  if (step.ranks != nullptr) sum_over_ranks(*step.ranks, out);
  step.finish("o");
}

}  // namespace halley
