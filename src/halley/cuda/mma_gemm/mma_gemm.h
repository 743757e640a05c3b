// Products of 4-bit weights by mma.sync, for GPUs of compute capability 8.0 to 9.0: weights lie as
// those of the Hopper products. See README.md in this folder.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mma_gemm/mma_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {

MmaShape mma_shape(const MixedWeight& weight, int64_t M);

/// mixed_gemm() with other kernels: y[m,n] = x_scale[m] * (w_scale[n] * sum - w_offset[n] *
/// x_sum[m]) + bias[n] of s8 activations, sum + bias[n] of others.
/// Shapes: x [M, K], y [M, N]; M may be 0. `operands.starts_early` is not read.
/// Requires: compute capability 8.0 to 9.0; plan.workspace_bytes() of the context's workspace.
/// Numerics: s8 exact in s32, so that a row of y depends on its row of x alone. Others: weights are
/// rounded once to the activations' type, f32 sums in ascending order of inputs within each of the
/// plan's parts of K, parts in ascending order. The same plan gives the same bits always; plans
/// with equal num_splits too.
void mma_gemm(const CudaContext& context, const MixedWeight& weight, const MixedOperands& operands,
              Matrix y);

/// The same with a plan of the caller's for this shape.
void mma_gemm_planned(const CudaContext& context, const MixedWeight& weight,
                      const MixedOperands& operands, const MmaPlan& plan, Matrix y);

MmaShape mma_shape(const W4axWeight& weight, int64_t M);

struct MmaW4axOperands {
  /// As w4ax_gemm() takes them; `starts_early` is not read.
  W4axOperands operands = {};
  /// Blocks that begin below this input have codes of 8 bits. Those of the others are from -8 to 7,
  /// and multiplied as s4: on 8.0 to 8.9 by the tensor cores, on 9.0 by what the compiler makes of
  /// it, which is slow and has the same bits.
  int64_t num_s8_inputs = 0;
};

/// w4ax_gemm() with other kernels, shapes as there:
///   y[m,n] = bias[n] + sum over blocks b of x_scale[m,b] * (w_scale[n,b] * sum).
/// Requires: compute capability 8.0 to 9.0; plan.workspace_bytes() of the context's workspace;
/// x_scales at a multiple of 16 bytes.
/// Numerics: sums of blocks exact in s32; w_scale * sum is rounded to f32 once, the product with
/// x_scale added without a rounding of its own (fmaf), blocks in ascending order within each of the
/// plan's parts of K, parts in ascending order.
void mma_w4ax_gemm(const CudaContext& context, const W4axWeight& weight,
                   const MmaW4axOperands& operands, Matrix y);

/// The same with a plan of the caller's for this shape.
void mma_w4ax_gemm_planned(const CudaContext& context, const W4axWeight& weight,
                           const MmaW4axOperands& operands, const MmaPlan& plan, Matrix y);

}  // namespace halley::cuda
