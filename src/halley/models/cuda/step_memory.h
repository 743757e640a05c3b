// Device memory of steps within declared limits, in addition to weights and cache.
#pragma once

#include <cstddef>

#include "halley/cuda/runtime/device_arena.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/cuda/attention_batches.h"
#include "halley/models/cuda/cuda_weights.h"
#include "halley/models/cuda/step_plan.h"

namespace halley::cuda {

/// Move-only. Addresses stay the same for its lifetime.
class StepMemory {
 public:
  /// `num_sms` as in CudaAttentionLimits. Throws DeviceError where the GPU has too little memory.
  StepMemory(const DecoderConfig& config, const CudaDecoderWeights& weights,
             const StepLimits& limits, int num_sms);

  const StepLimits& limits() const { return limits_; }
  /// Workspace of the operations.
  DeviceArena& scratch() { return scratch_; }
  /// Laid out by plan_activations() for any step within the limits.
  std::byte* activations() const { return activations_.data(); }
  /// Laid out by plan_arrays(), for as many logit rows as rows.
  std::byte* arrays() const { return arrays_.data(); }
  size_t array_bytes() const { return arrays_.num_bytes(); }
  AttentionBatches& attention() { return attention_; }
  /// A second residual stream of one row, [hidden_size] f32.
  std::byte* other_hidden() const { return other_hidden_.data(); }
  /// The most rows whose logits exist at a time.
  int64_t num_logit_rows() const;
  size_t device_bytes() const;

 private:
  StepLimits limits_;
  size_t attention_bytes_;
  DeviceArena scratch_;
  DeviceBuffer activations_;
  DeviceBuffer arrays_;
  DeviceBuffer other_hidden_;
  AttentionBatches attention_;
};

}  // namespace halley::cuda
