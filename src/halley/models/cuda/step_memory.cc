#include "halley/models/cuda/step_memory.h"

#include <algorithm>

namespace halley::cuda {
namespace {

/// A decode step has the logits of every row.
int64_t logit_rows_of(const StepLimits& limits) {
  return std::max(limits.num_logit_rows, std::min(limits.num_sequences, limits.num_rows));
}

/// The most that one linear layer takes; they run one after the other.
size_t scratch_bytes(const CudaDecoderWeights& weights, const StepLimits& limits) {
  size_t most = weights.output.workspace_bytes(logit_rows_of(limits));
  for (const CudaLayerWeights& layer : weights.layers) {
    for (const CudaLinear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
      most = std::max(most, linear->workspace_bytes(limits.num_rows));
    }
  }
  return std::max(most, DeviceArena::kAlignment);
}

}  // namespace

StepMemory::StepMemory(const DecoderConfig& config, const CudaDecoderWeights& weights,
                       const StepLimits& limits)
    : limits_(limits),
      attention_bytes_(AttentionBatches::num_bytes(config, limits)),
      scratch_(scratch_bytes(weights, limits), "the workspace of a step"),
      activations_(plan_activations(config, {limits.num_rows, logit_rows_of(limits)}).num_bytes,
                   "the activations of a step"),
      arrays_(plan_arrays({limits.num_rows, limits.num_rows}).num_bytes, "the arrays of a step"),
      attention_(config, limits) {}

int64_t StepMemory::num_logit_rows() const { return logit_rows_of(limits_); }

size_t StepMemory::device_bytes() const {
  return scratch_.num_bytes() + activations_.num_bytes() + arrays_.num_bytes() + attention_bytes_;
}

}  // namespace halley::cuda
