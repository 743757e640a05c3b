// The memory of the paged KV cache: one buffer per layer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/models/base/causal_lm.h"

namespace halley {

/// The page layout that `model` needs.
KvPageLayout kv_page_layout(const ModelShape& model, KvDType dtype, int64_t page_tokens);

/// Bytes of one page in all layers together.
int64_t kv_page_bytes(const ModelShape& model, const KvPageLayout& layout);

/// Owns `num_pages` pages in each layer; a page index stands for the same tokens in all layers. The
/// contents are undefined until written.
class KvCache {
 public:
  /// Allocates pages for each layer of the model, with the model's scales, in the memory of its
  /// device. Throws DeviceError if that fails.
  KvCache(const KvPageLayout& layout, const CausalLm& model, int64_t num_pages);

  KvCacheView view() const { return {layers_}; }

 private:
  std::vector<std::unique_ptr<KvMemory>> memory_;
  std::vector<KvLayerView> layers_;
};

/// Prepares the model for steps within the limits and makes a cache for them. Throws DeviceError
/// if the device has no room for both.
KvCache prepare_cache(CausalLm& model, const StepLimits& limits, int64_t num_pages);

}  // namespace halley
