#include "halley/core/packed_weight.h"

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/core/float4.h"
#include "halley/core/float8.h"

namespace halley {
namespace {

size_t quad_bytes(size_t num_rows, int64_t K, size_t bits) {
  return num_rows * static_cast<size_t>(round_up(K, kQuadUnitInputs)) / 8 * bits;
}

}  // namespace

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
    case PackedLayout::kU8Quad:
      return "u8_quad";
    case PackedLayout::kF8E4M3Quad:
      return "f8_e4m3_quad";
    case PackedLayout::kU4Quad:
      return "u4_quad";
    case PackedLayout::kU2Quad:
      return "u2_quad";
    case PackedLayout::kU3Quad:
      return "u3_quad";
    case PackedLayout::kE2m1Quad:
      return "e2m1_quad";
    case PackedLayout::kNestedF16Quad:
      return "nested_f16_quad";
  }
  HALLEY_CHECK(false, static_cast<int>(layout));
  return "";
}

const char* name_of(ActivationQuant activation) {
  switch (activation) {
    case ActivationQuant::kNone:
      return "none";
    case ActivationQuant::kS8Token:
      return "s8_token";
    case ActivationQuant::kS8Static:
      return "s8_static";
    case ActivationQuant::kE4m3Token:
      return "e4m3_token";
    case ActivationQuant::kE4m3Group128:
      return "e4m3_group128";
    case ActivationQuant::kE4m3Static:
      return "e4m3_static";
    case ActivationQuant::kS4S8Block128:
      return "s4s8_block128";
  }
  HALLEY_CHECK(false, static_cast<int>(activation));
  return "";
}

double value_of(PackedLayout layout, uint8_t code) {
  if (layout == PackedLayout::kF8E4M3Quad) return e4m3_to_f32(code);
  return layout == PackedLayout::kE2m1Quad ? e2m1_to_f32(code) : code;
}

bool is_quantized(PackedLayout layout) {
  return layout >= PackedLayout::kU8Quad && layout <= PackedLayout::kE2m1Quad;
}

bool has_low_precision(PackedLayout layout) { return layout == PackedLayout::kNestedF16Quad; }

int64_t PackedWeight::num_groups() const {
  HALLEY_DCHECK(quant.group_size > 0, quant.group_size);
  return ceil_div(K, quant.group_size);
}

const float* PackedWeight::group(int64_t panel, int64_t group_index) const {
  const int64_t index = panel * num_groups() + group_index;
  return reinterpret_cast<const float*>(quant.groups.data()) + index * 2 * kPanelRows;
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
    case PackedLayout::kU8Quad:
    case PackedLayout::kF8E4M3Quad:
      return quad_bytes(rows, K, 8);
    case PackedLayout::kU4Quad:
    case PackedLayout::kE2m1Quad:
      return quad_bytes(rows, K, 4);
    case PackedLayout::kU2Quad:
      return quad_bytes(rows, K, 2);
    case PackedLayout::kU3Quad:
      return quad_bytes(rows, K, 3);
    case PackedLayout::kNestedF16Quad:
      return quad_bytes(rows, K, 16);
  }
  HALLEY_CHECK(false, static_cast<int>(layout));
  return 0;
}

size_t group_bytes(int64_t N, int64_t K, int64_t group_size) {
  HALLEY_CHECK(group_size > 0, group_size);
  return static_cast<size_t>(round_up(N, kPanelRows) * ceil_div(K, group_size)) * 2 * sizeof(float);
}

}  // namespace halley
