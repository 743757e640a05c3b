#include "halley/models/cuda/attention_batches.h"

#include <algorithm>

#include "halley/base/checked_math.h"

namespace halley::cuda {
namespace {

std::vector<int64_t> windows_of(const DecoderConfig& config) {
  std::vector<int64_t> windows;
  for (const LayerSpec& layer : config.layers) {
    if (std::find(windows.begin(), windows.end(), layer.window) == windows.end()) {
      windows.push_back(layer.window);
    }
  }
  return windows;
}

CudaAttentionLimits attention_limits(const DecoderConfig& config, const StepLimits& limits) {
  return {.num_sequences = limits.num_sequences,
          // Sequences may share pages: the cache's size is no limit.
          .num_tokens = limits.num_sequences * limits.max_length,
          .num_new_tokens = limits.num_rows,
          .pages_per_sequence = ceil_div(limits.max_length, limits.page_tokens),
          .num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim};
}

}  // namespace

AttentionProblem attention_problem(const DecoderConfig& config, const LayerSpec& layer) {
  return {.num_heads = config.num_heads,
          .scale = config.attention_scale,
          .soft_cap = config.attention_soft_cap,
          .window = layer.window};
}

AttentionBatches::AttentionBatches(const DecoderConfig& config, const StepLimits& limits,
                                   int num_sms) {
  CudaAttentionLimits largest = attention_limits(config, limits);
  largest.num_sms = num_sms;
  const std::vector<int64_t> windows = windows_of(config);
  for (const LayerSpec& layer : config.layers) {
    const auto found = std::find(windows.begin(), windows.end(), layer.window);
    const auto index = static_cast<size_t>(found - windows.begin());
    if (index == batches_.size()) {
      problems_.push_back(attention_problem(config, layer));
      batches_.emplace_back(largest);
    }
    of_layer_.push_back(index);
  }
}

void AttentionBatches::update(const CudaStream& stream, const KvLayerView& cache,
                              std::span<const BatchSequence> sequences) {
  for (size_t i = 0; i < batches_.size(); ++i) {
    batches_[i].update(stream, problems_[i], cache.layout, cache.num_pages, sequences);
  }
}

std::vector<bool> AttentionBatches::is_warp_per_item() const {
  std::vector<bool> result;
  for (const CudaAttentionBatch& batch : batches_) result.push_back(batch.is_warp_per_item());
  return result;
}

size_t AttentionBatches::num_bytes(const DecoderConfig& config, const StepLimits& limits) {
  return windows_of(config).size() *
         CudaAttentionBatch::num_bytes(attention_limits(config, limits));
}

}  // namespace halley::cuda
