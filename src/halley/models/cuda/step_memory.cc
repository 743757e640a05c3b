#include "halley/models/cuda/step_memory.h"

#include <algorithm>
#include <optional>

#include "halley/base/checked_math.h"
#include "halley/cuda/weights/linear_input.h"

namespace halley::cuda {
namespace {

/// A decode step computes the logits of every row.
int64_t logit_rows_of(const StepLimits& limits) {
  return std::max(limits.num_logit_rows, std::min(limits.num_sequences, limits.num_rows));
}

/// Scratch of a layer and of its quantized inputs.
size_t linear_bytes(const CudaLinear& linear, int64_t M) {
  return linear_input_bytes(linear, M) + linear.workspace_bytes(M);
}

/// The largest scratch of one operation; they run one after the other.
size_t scratch_bytes(const CudaDecoderWeights& weights, const StepLimits& limits) {
  const int64_t M = limits.num_rows;
  size_t most = linear_bytes(weights.output, logit_rows_of(limits));
  const auto gathered_bytes = [M](const std::optional<ColumnShares>& inputs) {
    if (!inputs) return size_t{0};
    const GatherPlan plan = plan_gather(*inputs, M);
    return round_up(plan.part_bytes, DeviceArena::kAlignment) +
           round_up(plan.all_bytes, DeviceArena::kAlignment);
  };
  for (const CudaLayerWeights& layer : weights.layers) {
    most = std::max({most, linear_bytes(layer.qkv, M),
                     linear_bytes(layer.o, M) + gathered_bytes(layer.o_inputs)});
    if (layer.experts) {
      most = std::max({most, linear_bytes(*layer.router, M), layer.experts->workspace_bytes(M)});
    } else {
      most = std::max({most, linear_bytes(layer.gate_up, M),
                       linear_bytes(layer.down, M) + gathered_bytes(layer.down_inputs)});
    }
  }
  return std::max(most, DeviceArena::kAlignment);
}

}  // namespace

StepMemory::StepMemory(const DecoderConfig& config, const CudaDecoderWeights& weights,
                       const StepLimits& limits, int num_sms)
    : limits_(limits),
      attention_bytes_(AttentionBatches::num_bytes(config, limits)),
      scratch_(scratch_bytes(weights, limits), "the workspace of a step"),
      activations_(plan_activations(config, {limits.num_rows, logit_rows_of(limits)}).num_bytes,
                   "the activations of a step"),
      arrays_(plan_arrays({limits.num_rows, limits.num_rows}).num_bytes, "the arrays of a step"),
      other_hidden_(static_cast<size_t>(config.hidden_size) * sizeof(float), "the residual stream"),
      attention_(config, limits, num_sms) {}

int64_t StepMemory::num_logit_rows() const { return logit_rows_of(limits_); }

size_t StepMemory::device_bytes() const {
  return scratch_.num_bytes() + activations_.num_bytes() + arrays_.num_bytes() +
         other_hidden_.num_bytes() + attention_bytes_;
}

}  // namespace halley::cuda
