#include "halley/engine/kv_cache.h"

#include <optional>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {

KvPageLayout kv_page_layout(const ModelShape& model, KvDType dtype, int64_t page_tokens) {
  return {dtype, model.num_kv_heads, model.head_dim, page_tokens};
}

int64_t kv_page_bytes(const ModelShape& model, const KvPageLayout& layout) {
  return model.num_layers * static_cast<int64_t>(layout.page_bytes());
}

KvCache::KvCache(const KvPageLayout& layout, const CausalLm& lm, int64_t num_pages) {
  const ModelShape& model = lm.shape();
  HALLEY_CHECK(
      model.kv_scales.empty() || static_cast<int64_t>(model.kv_scales.size()) == model.num_layers,
      model.kv_scales.size(), model.num_layers);
  const auto layer_bytes = checked_mul(layout.page_bytes(), static_cast<size_t>(num_pages));
  if (!layer_bytes) {
    throw DeviceError(str("kv cache: ", num_pages, " pages of ", layout.page_bytes(),
                          " bytes do not fit the address space. Use a smaller kv_bytes."));
  }
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    memory_.push_back(lm.make_kv_memory(*layer_bytes));
    const KvScales scales =
        model.kv_scales.empty() ? KvScales{} : model.kv_scales[static_cast<size_t>(layer)];
    layers_.push_back({layout, memory_.back()->data(), num_pages, scales});
  }
}

KvCache prepare_cache(CausalLm& model, const StepLimits& limits, int64_t num_pages) {
  const std::optional<int64_t> available_bytes = model.prepare(limits);
  const KvPageLayout layout = kv_page_layout(model.shape(), limits.kv_dtype, limits.page_tokens);
  const auto bytes = checked_mul(kv_page_bytes(model.shape(), layout), num_pages);
  if (available_bytes && (!bytes || *bytes > *available_bytes)) {
    throw DeviceError(
        str("kv cache: expected room for ", num_pages, " pages of ",
            kv_page_bytes(model.shape(), layout), " bytes on ", model.device_name(), ", got ",
            *available_bytes,
            " bytes. Use a smaller kv_dtype, a shorter window or fewer rows a step."));
  }
  return {layout, model, num_pages};
}

}  // namespace halley
