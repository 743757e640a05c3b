// RMSNorm and LayerNorm over rows on the GPU, with the addition to the residual stream before them.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// weight, bias [K] f32 in device memory; bias may be null.
struct NormParams {
  bool is_layer_norm = false;
  const float* weight = nullptr;
  const float* bias = nullptr;  // layer_norm only
  float weight_offset = 0;      // rms_norm only
  float epsilon = 0;
};

/// y = norm(x), as in kernels/norm/norm.h.
/// Shapes    x, y [M, K]; x f32, f16 or bf16; y f32, f16 or bf16
/// Requires  K <= kNormColumnsMax
/// Numerics  f32; the order of accumulation depends on K alone
void norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix x, Matrix y);

/// hidden += block, then y = norm(hidden).
/// Shapes    hidden [M, K] f32; block, y [M, K] f16 or bf16, both of one type
void add_norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix block,
                   Matrix hidden, Matrix y);

/// hidden += block. Shapes as add_norm_rows().
void add_rows(const CudaContext& context, ConstMatrix block, Matrix hidden);

/// hidden += block (empty: nothing), then y = hidden in the type of y: the inputs of a block that
/// has no norm before it. Shapes as add_norm_rows().
void add_round_rows(const CudaContext& context, ConstMatrix block, Matrix hidden, Matrix y);

/// A row is held in shared memory as f32.
inline constexpr int64_t kNormColumnsMax = 50 * 1024;

}  // namespace halley::cuda
