#include "halley/core/packed_weight.h"

#include "halley/base/check.h"
#include "halley/base/checked_math.h"

namespace halley {

const char* name_of(PackedLayout layout) {
  switch (layout) {
    case PackedLayout::kF32RowMajor:
      return "f32_row_major";
    case PackedLayout::kF32Panel:
      return "f32_panel";
    case PackedLayout::kF16Panel:
      return "f16_panel";
    case PackedLayout::kBf16PairPanel:
      return "bf16_pair_panel";
  }
  HALLEY_CHECK(false, static_cast<int>(layout));
  return "";
}

size_t packed_bytes(PackedLayout layout, int64_t N, int64_t K) {
  const auto rows = static_cast<size_t>(round_up(N, kPanelRows));
  switch (layout) {
    case PackedLayout::kF32RowMajor:
      return static_cast<size_t>(N) * static_cast<size_t>(K) * 4;
    case PackedLayout::kF32Panel:
      return rows * static_cast<size_t>(K) * 4;
    case PackedLayout::kF16Panel:
      return rows * static_cast<size_t>(K) * 2;
    case PackedLayout::kBf16PairPanel:
      return rows * static_cast<size_t>(round_up<int64_t>(K, 2)) * 2;
  }
  HALLEY_CHECK(false, static_cast<int>(layout));
  return 0;
}

}  // namespace halley
