// Attention work items of one step, for layers with different windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "halley/cuda/attention/cuda_attention.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"

namespace halley::cuda {

/// Attention parameters of a layer.
AttentionProblem attention_problem(const DecoderConfig& config, const LayerSpec& layer);

/// One CudaAttentionBatch for each window size of the layers.
class AttentionBatches {
 public:
  /// `num_sms` as in CudaAttentionLimits.
  AttentionBatches(const DecoderConfig& config, const StepLimits& limits, int num_sms);

  /// Plans the step and queues its copies.
  void update(const CudaStream& stream, const KvLayerView& cache,
              std::span<const BatchSequence> sequences);

  /// CudaAttentionBatch::is_warp_per_item() of each window. A captured step serves later ones whose
  /// update() says the same.
  std::vector<bool> is_warp_per_item() const;

  const CudaAttentionBatch& of_layer(size_t layer) const { return batches_[of_layer_[layer]]; }
  /// All device memory that it takes.
  static size_t num_bytes(const DecoderConfig& config, const StepLimits& limits);

 private:
  std::vector<AttentionProblem> problems_;  // of each window
  std::vector<CudaAttentionBatch> batches_;
  std::vector<size_t> of_layer_;
};

}  // namespace halley::cuda
