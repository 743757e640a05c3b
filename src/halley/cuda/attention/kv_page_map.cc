#include "halley/cuda/attention/kv_page_map.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/cuda/attention/wgmma_layout.h"
#include "halley/cuda/runtime/tensor_map.h"

namespace halley::attention {
namespace {

constexpr int64_t kGroupRows = 8;
constexpr int64_t kTileTokens = 128;

}  // namespace

int box_tokens(const KvPageLayout& layout) {
  const bool is_16_bit = layout.dtype == KvDType::kF16 || layout.dtype == KvDType::kBf16;
  const bool is_whole = layout.head_dim == 64 || layout.head_dim == 128;
  if (!is_16_bit || !is_whole || layout.page_tokens % kGroupRows != 0) return 0;
  return static_cast<int>(std::min(layout.page_tokens & -layout.page_tokens, kTileTokens));
}

int value_groups(const KvPageLayout& layout) {
  return static_cast<int>(layout.num_kv_heads * layout.page_tokens / kGroupRows);
}

CUtensorMap page_map(const KvLayerView& cache) {
  const KvPageLayout& layout = cache.layout;
  const auto row_bytes = static_cast<cuuint64_t>(layout.row_bytes());
  const auto num_panels = static_cast<cuuint32_t>(layout.head_dim / kPanelColumns);
  const cuuint64_t sizes[5] = {kPanelColumns, kGroupRows, num_panels,
                               2 * static_cast<cuuint64_t>(value_groups(layout)),
                               static_cast<cuuint64_t>(std::max<int64_t>(cache.num_pages, 1))};
  const cuuint64_t strides[4] = {row_bytes, kPanelRowBytes, kGroupRows * row_bytes,
                                 static_cast<cuuint64_t>(layout.page_bytes())};
  const cuuint32_t box[5] = {kPanelColumns, kGroupRows, num_panels,
                             static_cast<cuuint32_t>(box_tokens(layout) / kGroupRows), 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      tensor_map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 5, cache.pages, sizes, strides,
                           box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HALLEY_CHECK(result == CUDA_SUCCESS, static_cast<int>(result), cache.num_pages,
               layout.page_tokens, layout.num_kv_heads, layout.head_dim);
  return map;
}

}  // namespace halley::attention
