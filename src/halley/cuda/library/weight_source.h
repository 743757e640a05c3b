// Checks a caller's host weight and converts it to the source of its kernels' packing.
#pragma once

#include "halley/core/dtype.h"
#include "halley/cuda/gemv/gemv_weight.h"
#include "halley/cuda/library/halley_kernels.h"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/mixed_pack.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// Type of x in a GEMM with a mixed-input weight of this kind.
DType input_dtype(MixedKind kind);

/// The arrays of a source for the mixed-input kernels. Throws InputError where they are wrong, or
/// of another kind.
MixedSource mixed_source_of(const halley_kernels_source& source);

/// The GEMV shape of a source; 0 bits: its kind is none of cuda/gemv.
GemvShape gemv_shape_of(const halley_kernels_source& source);

/// Checks the arrays of a source of this shape, and waits until they are packed. Throws InputError
/// where they are wrong, UnsupportedError where the shape or the GPU has no kernel.
GemvWeight pack_gemv(const CudaContext& context, const halley_kernels_source& source,
                     const GemvShape& shape);

}  // namespace halley::cuda
