// Products of a layer's section by cuda/nested_gemm and cuda/w4ax_gemm: what is done to x first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/quantize_rows.h"
#include "halley/cuda/mma_gemm/w4_kernels.h"
#include "halley/cuda/nested_gemm/nested_gemm.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {

/// Of one product. x is f16, bf16 or f32; of W4Ax products i8.
struct TileLinearInputs {
  ConstMatrix x;
  /// Of W4Ax products: [blocks][round_up(M, kW4axTokenPadding)].
  const float* x_scales = nullptr;
  int64_t num_s8_inputs = 0;
  const float* bias = nullptr;  // [N]
  /// The plan, and with it the order of sums, does not depend on M.
  bool is_batch_invariant = false;
  W4Kernels w4_kernels = W4Kernels::kHopper;  // of run_w4ax_linear()
};

/// x rounded to f16 where it is not.
void run_nested_linear(const CudaContext& context, const NestedWeight& weight,
                       const TileLinearInputs& inputs, Matrix y);
size_t nested_linear_bytes(int num_sms, const NestedWeight& weight, int64_t M);

/// Codes of M inputs of a W4Ax product, kS4S8Block128: from the workspace.
QuantizedRows take_w4ax_rows(const CudaContext& context, int64_t M, int64_t K);
/// The most that it takes.
size_t w4ax_rows_bytes(int64_t M, int64_t K);

/// x as quantize_rows() leaves it in take_w4ax_rows().
void run_w4ax_linear(const CudaContext& context, const W4axWeight& weight,
                     const TileLinearInputs& inputs, Matrix y);
/// Of the product alone.
size_t w4ax_linear_bytes(int num_sms, W4Kernels kernels);

}  // namespace halley::cuda
