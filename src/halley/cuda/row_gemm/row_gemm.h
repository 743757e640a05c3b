// Products of a 4-bit weight and one row that begin with what makes the row, the addition to the
// residual stream and its norm or the rounding to codes, and end with the function of an MLP: a
// decode of one sequence then has few launches. Each block makes the whole row, while its weights
// are on their way.
#pragma once

#include <optional>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/row_gemm/row_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// All in device memory; rows begin at multiples of 16 bytes.
struct RowOperands {
  /// [1, K] f16 or bf16 (of weights of 16 bits: their type). With a norm what is added to `hidden`
  /// before; no data: nothing is.
  ConstMatrix x = {};
  std::optional<NormParams> norm = std::nullopt;  // root mean square
  ConstMatrix hidden = {};                        // [1, K] f32, with a norm
  Matrix sum = {};  // [1, K] f32, hidden + x; not the memory of hidden. With a norm and x
  /// Of s8: one scale for the row; of W4Ax kS4S8Block128, its order at a multiple of 16 bytes.
  CudaActivationQuant quant = {};
  const float* bias = nullptr;                    // [N]
  std::optional<Activation> gate = std::nullopt;  // of outputs [0, N / 2), then times the others
};

/// y = product of norm(sum = hidden + x), or of x, rounded to codes of s8 where the weight takes
/// those; y [1, N] f16, bf16 or f32, [1, N / 2] of x's type with a gate.
/// Requires  compute capability 9.0, a plan (plan_row()), weights of 16 bits: x's type
/// Numerics  the bits of add_norm_rows(), quantize_rows(), mixed_gemm() and gated_activation() one
///           after the other, but that sums of 16 bits may have another order than mixed_gemm()'s
void row_gemm(const CudaContext& context, const MixedWeight& weight, const RowOperands& operands,
              Matrix y);

/// The same of W4Ax; sums of blocks may have another order than w4ax_gemm()'s.
void row_gemm(const CudaContext& context, const W4axWeight& weight, const RowOperands& operands,
              Matrix y);

RowShape row_shape(const MixedWeight& weight, const RowOperands& operands);
RowShape row_shape(const W4axWeight& weight, const RowOperands& operands);

}  // namespace halley::cuda
