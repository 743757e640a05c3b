// Gathers rows of a matrix in device memory by index: those whose logits the step returns, and
// those of experts.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// y[i] = x[rows[i]]. Shapes x [M, K], rows [num_rows] in device memory, y [num_rows, K]; any one
/// type of whole bytes.
void gather_rows(const CudaContext& context, ConstMatrix x, const int32_t* rows, Matrix y);

}  // namespace halley::cuda
