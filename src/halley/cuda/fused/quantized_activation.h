// Functions of MLPs that leave codes: what gated_activation() and quantize_rows() do, in one pass.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/fused/quantized_output.h"
#include "halley/cuda/ops/activation.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// Bit for bit quantize_rows() of gated_activation().
/// Shapes    gate_up [M, 2F] of y.dtype, y.rows.codes [M, F]
/// Requires  F <= kQuantizedActivationColumnsMax
void gated_activation(const CudaContext& context, Activation activation, ConstMatrix gate_up,
                      const QuantizedOutput& y);

/// A row lies as f32 in the shared memory of the blocks of one cluster.
inline constexpr int64_t kQuantizedActivationColumnsMax = int64_t{8} * 11 * 1024;

}  // namespace halley::cuda
