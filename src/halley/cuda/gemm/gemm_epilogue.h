// What follows a product of codes: scales, offsets, bias, the output's type.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// y[m,n] = scaled(sums[m,n]) + bias[n], as RowScales says.
/// Shapes: sums [M, N] s32 or f32, y [M, N] f16, bf16 or f32; any strides.
/// Numerics: every step in f32, rounded to y's type once. s32 sums beyond 2^24 are rounded to f32.
void scale_sums(const CudaContext& context, ConstMatrix sums, const RowScales& scales,
                const float* bias, Matrix y);

}  // namespace halley::cuda
