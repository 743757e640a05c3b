// Rows of tables in device memory: embeddings, learned positions, and the rows whose logits are
// wanted.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// y[m] = table[ids[m]] * scale, or y[m] += with `is_added`.
/// Shapes    table [V, K] f32, f16 or bf16; ids [M] in device memory, each in [0, V); y [M, K] f32
void embedding(const CudaContext& context, ConstMatrix table, const int32_t* ids, float scale,
               bool is_added, Matrix y);

/// y[i] = x[rows[i]]. Shapes x [M, K], rows [num_rows] in device memory, y [num_rows, K]; any one
/// type of at least 16 bits.
void gather_rows(const CudaContext& context, ConstMatrix x, const int32_t* rows, Matrix y);

}  // namespace halley::cuda
