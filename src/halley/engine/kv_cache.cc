#include "halley/engine/kv_cache.h"

#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {

KvPageLayout kv_page_layout(const ModelShape& model, DType dtype, int64_t page_tokens) {
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBf16) {
    throw InputError(str("kv_dtype: expected f32, f16 or bf16, got ", dtype));
  }
  return {dtype, model.num_kv_heads, model.head_dim, page_tokens};
}

int64_t kv_page_bytes(const ModelShape& model, const KvPageLayout& layout) {
  return model.num_layers * static_cast<int64_t>(layout.page_bytes());
}

KvCache::KvCache(const KvPageLayout& layout, int64_t num_layers, int64_t num_pages) {
  const auto layer_bytes = checked_mul(layout.page_bytes(), static_cast<size_t>(num_pages));
  if (!layer_bytes) {
    throw DeviceError(str("kv cache: ", num_pages, " pages of ", layout.page_bytes(),
                          " bytes do not fit the address space. Use a smaller kv_bytes."));
  }
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    buffers_.emplace_back(*layer_bytes);
    layers_.push_back({layout, buffers_.back().data(), num_pages});
  }
}

}  // namespace halley
