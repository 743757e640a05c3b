// The quantized blocks of GGUF files in terms of a quad layout: quantized values, and a scale and a
// zero for each group. No type loses anything; README.md has the table.
#pragma once

#include <cstdint>

#include "halley/checkpoint/gguf/ggml_type.h"
#include "halley/core/packed_weight.h"

namespace halley {

struct BlockLayout {
  GgmlType type = GgmlType::kQ4_0;
  PackedLayout layout = PackedLayout::kU4Quad;
  int bits = 4;  // of the layout
  int64_t group_size = 32;
  ZeroKind zero_kind = ZeroKind::kPoint;
  /// Writes the kQuadUnitInputs quantized values of unit `unit` of a block, a byte each.
  void (*read_codes)(const uint8_t* block, int64_t unit, uint8_t* codes) = nullptr;
  /// Writes scale and zero of each group of a block to groups[0], groups[1], groups[2], ...
  void (*read_groups)(const uint8_t* block, float* groups) = nullptr;
};

/// The layout of a quantized type.
const BlockLayout& block_layout_of(GgmlType type);

/// Groups of the largest block.
inline constexpr int64_t kBlockGroupsMax = 16;

}  // namespace halley
