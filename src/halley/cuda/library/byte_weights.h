// Weights of bytes: rows of s8 and of e4m3 for the GEMMs of cuda/gemm, and f16 in two planes.
#pragma once

#include <memory>

#include "halley/cuda/library/halley_kernels.h"
#include "halley/cuda/library/library_weight.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// HALLEY_KERNELS_W8A8 and HALLEY_KERNELS_FP8; throw as pack_library_weight().
std::unique_ptr<LibraryWeight> pack_rows_weight(const CudaContext& context,
                                                const halley_kernels_source& source);
/// HALLEY_KERNELS_NESTED.
std::unique_ptr<LibraryWeight> pack_nested_weight(const CudaContext& context,
                                                  const halley_kernels_source& source);

/// The rows whose accumulators of 32 bits, and a copy of whose inputs, fit into `num_bytes` of
/// workspace: a multiple of 16, 0 where not even 16 do.
int64_t library_rows_at_once(size_t num_bytes, int64_t N, int64_t K);

}  // namespace halley::cuda
