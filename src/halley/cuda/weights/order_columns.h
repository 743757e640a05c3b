// Inputs in the order in which a weight's groups lie together.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// y[m, k] = x[m, order[k]], rounded to y's type.
/// Shapes: x [M, num_inputs], y [M, K], each f16, bf16 or f32; order [K] in device memory, of
/// numbers below num_inputs, written before anything that is in flight. They may not overlap.
void order_columns(const CudaContext& context, const int32_t* order, ConstMatrix x, Matrix y);

}  // namespace halley::cuda
