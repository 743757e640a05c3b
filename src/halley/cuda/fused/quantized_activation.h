// Gated MLP activations with quantized outputs: gated_activation() and quantize_rows() fused.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/fused/quantized_output.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// Equal to quantize_rows() of gated_activation() bit for bit.
/// Shapes    gate_up [M, 2F] of y.dtype, y [M, F]
/// Requires  F <= kQuantizedActivationColumnsMax
void gated_activation(const CudaContext& context, Activation activation, ConstMatrix gate_up,
                      const QuantizedOutput& y);

/// The CTAs of a cluster hold a row as f32 in shared memory.
inline constexpr int64_t kQuantizedActivationColumnsMax = int64_t{8} * 11 * 1024;

}  // namespace halley::cuda
