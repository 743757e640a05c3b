// Products of a few rows: as fast as the weights can be read, by mma.sync with weights from
// registers.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// Products of more rows need more of x than a block can hold beside its weights.
inline constexpr int64_t kFewRowsMax = 32;

/// One product. All in device memory; rows of x and w begin at multiples of 16 bytes and have
/// multiples of 16 bytes, those behind K zero.
struct FewRowsOperands {
  ConstMatrix x;  // [M, K]
  ConstMatrix w;  // [N, K]
  RowScales scales = {};
  const float* bias = nullptr;  // [N]
};

/// y[m,n] = scaled(sum over k of x[m,k] w[n,k]) + bias[n], as RowScales says.
/// Shapes    x, w both f16, bf16, e4m3 or i8; y [M, N] f16, bf16 or f32, any strides
/// Requires  M <= kFewRowsMax; K, in bytes of x, a multiple of 16
/// Numerics  f32 sums (s32 for i8, exact) by the tensor cores: eight chains over the inputs of
///           every eighth 128 bytes, added in order, rounded to y's type once. K alone decides the
///           order: a row has the same bits in every batch.
/// The weights are read before the kernel queued last is done (programmatic dependent launch), so
/// it may not write them; all else is read and written behind it.
void gemm_few_rows(const CudaContext& context, const FewRowsOperands& operands, Matrix y);

}  // namespace halley::cuda
