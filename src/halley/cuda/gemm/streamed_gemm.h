// Products of up to 64 rows, as fast as the weights can be read: by the copy engine into shared
// memory, and from there by the tensor cores (wgmma).
#pragma once

#include <cstdint>
#include <optional>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/gemm/streamed_plan.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// One product. All in device memory; rows of x and w begin at multiples of 16 bytes.
struct StreamedOperands {
  ConstMatrix x;  // [M, K]
  ConstMatrix w;  // [N, K]
  RowScales scales = {};
  const float* bias = nullptr;  // [N]
  /// Outputs in pairs: y[m,i] = f(z[m,i]) * z[m,N/2+i], where z is the product, rounded to y's type
  /// as it would be in memory.
  std::optional<Activation> gate = std::nullopt;
};

/// y[m,n] = scaled(sum over k of x[m,k] w[n,k]) + bias[n], as RowScales says.
/// Shapes    x, w both f16, bf16, e4m3 or i8; y [M, N] ([M, N / 2] with a gate) f16, bf16 or f32,
///           any strides
/// Requires  M <= kStreamedRowsMax; rows of x of a multiple of kStreamedChunkBytes; a GPU of
/// compute
///           capability 9.0
/// Numerics  f32 sums by the tensor cores (s32 of i8, exact), over the inputs in order, or parts of
///           them whose sums are added in order where the plan splits inputs; of e4m3 every 256
///           inputs are added in f32. Rounded to y's type once.
/// The weights are read before the kernel queued last is done (programmatic dependent launch), so
/// it may not write them; all else is read and written behind it.
void streamed_gemm(const CudaContext& context, const StreamedOperands& operands, Matrix y);

/// The same by a plan for these operands.
void streamed_gemm_planned(const CudaContext& context, const StreamedOperands& operands,
                           const StreamedPlan& plan, Matrix y);

StreamedShape streamed_shape(const StreamedOperands& operands);
StreamedDevice streamed_device(const CudaContext& context);

}  // namespace halley::cuda
