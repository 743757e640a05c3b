// Rows of experts back into the order of tokens, on the GPU.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/moe/moe_routing.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// y[m] = sum over the row's experts, in ascending order, of weight * slots[slot].
/// Shapes    slots [num_slots, K], y [M, K]; each f32, f16 or bf16
/// Numerics  f32, a product and a sum each rounded, as combine_slots() of the CPU; then to y's type
void combine_rows(const CudaContext& context, const DeviceRouting& routing, ConstMatrix slots,
                  Matrix y);

}  // namespace halley::cuda
