// The product without tensor cores: for every shape and type, and the reference on the GPU.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// y[m,n] = scaled(sum over k of x[m,k] w[n,k]) + bias[n], as RowScales says.
/// Shapes: x [M, K], w [N, K], y [M, N]; any size, 0 included; any strides. x and w are both f16,
/// bf16, f32, e4m3 or i8; y is f16, bf16 or f32.
/// Numerics: one chain of fused multiply-adds in f32 over k = 0, 1, ..., K-1; i8 in s32, exact for
/// K below 131072. A row of y depends on its row of x alone.
void gemm_plain(const CudaContext& context, ConstMatrix x, ConstMatrix w, const RowScales& scales,
                const float* bias, Matrix y);

}  // namespace halley::cuda
