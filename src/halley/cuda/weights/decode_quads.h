// Weights in quad layouts, decoded on the GPU to rows of numbers or of codes.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// Some whole panels of a weight, in device memory.
struct QuadPanels {
  PackedLayout layout = PackedLayout::kU4Quad;
  /// The panels' data as PackedWeight has them.
  const uint8_t* data = nullptr;
  /// Their scales and zeros as PackedWeight has them; null for kNestedF16Quad.
  const float* groups = nullptr;
  int64_t group_size = 1;
  ZeroKind zero_kind = ZeroKind::kPoint;
  /// QuantParams::input_perm in device memory, or null.
  const int32_t* input_perm = nullptr;
};

/// rows[n, k] = the weight of feature n of the panels and input k of x (the order undone).
/// Shapes: rows [num_rows, K], of f16, bf16 or f32; the panels hold at least num_rows features.
/// Numerics: what unpack_row() gives, rounded once more to the type of rows. *num_lost is
/// incremented for every number that is not finite in that type; it must be zero before.
void decode_quads(const CudaContext& context, const QuadPanels& panels, Matrix rows,
                  uint32_t* num_lost);

/// rows[n, k] = the code itself: e4m3 as it is for kF8E4M3Quad; s8 otherwise, codes of 8 bits less
/// 128. The inputs' order undone.
/// Shapes: rows [num_rows, K] of f8_e4m3 or i8; columns K to row_stride become zero.
/// Of kNestedF16Quad the bytes of a plane: rows of f8_e4m3 take the upper one, of u8 the lower one.
void decode_codes(const CudaContext& context, const QuadPanels& panels, Matrix rows);

/// to = from, rounded to the type of `to`; f16, bf16 or f32, the same shape. *num_lost as above.
void convert_rows(const CudaContext& context, ConstMatrix from, Matrix to, uint32_t* num_lost);

}  // namespace halley::cuda
