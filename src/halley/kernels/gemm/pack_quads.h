// Packs quantized values into the quad layouts (packed_weight.h) and dequantizes packed weights.
#pragma once

#include <cstdint>

#include "halley/core/packed_weight.h"
#include "halley/core/precision.h"

namespace halley {

/// Bits of a quantized value of a quad layout, or of one plane of kNestedF16Quad: 2, 3, 4 or 8.
int code_bits(PackedLayout layout);

/// Packs whole units of one panel: `quads` holds num_units * 1024 quantized values, one a byte, in
/// the order of kU8Quad (quad, feature, k % 4). Writes num_units * 128 * code_bits(layout) bytes.
/// Values must be below 2^bits. A plane of kNestedF16Quad is packed by itself.
void pack_quads(PackedLayout layout, const uint8_t* quads, int64_t num_units, std::byte* out);

/// The reverse, for one unit: 1024 values.
void unpack_unit(PackedLayout layout, const std::byte* unit, uint8_t* quads);

/// Row n of a weight in a quad layout as f32, in the order of x (the permutation undone); out has K
/// elements. unpack_row() of pack_dense.h calls it for these layouts.
void unpack_quantized_row(const PackedWeight& weight, int64_t n, float* out);

/// Row n of a weight in kNestedF16Quad as f32; in low precision the values of the upper bytes
/// alone.
void unpack_nested_row(const PackedWeight& weight, int64_t n, Precision precision, float* out);

/// Sets data, and groups where the layout has them, of a weight whose layout, N, K and
/// quant.group_size are set: allocates, and zeroes nothing.
void allocate_quantized(PackedWeight* weight);

}  // namespace halley
