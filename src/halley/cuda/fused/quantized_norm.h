// Norms with quantized outputs: norm_rows() and quantize_rows() fused.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/fused/quantized_output.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// Equal to quantize_rows() of norm_rows() into rows of y.dtype, bit for bit.
/// Shapes    x, y [M, K]; x f32, f16 or bf16
/// Requires  K <= kNormColumnsMax
void norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix x,
               const QuantizedOutput& y);

/// hidden += block, then the same for hidden. Equal to quantize_rows() of add_norm_rows() bit for
/// bit.
/// Shapes    hidden [M, K] f32; block [M, K] f16 or bf16
void add_norm_rows(const CudaContext& context, const NormParams& params, ConstMatrix block,
                   Matrix hidden, const QuantizedOutput& y);

}  // namespace halley::cuda
