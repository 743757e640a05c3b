// A caller's weight of the host, checked, as the packing of its kind takes it.
#pragma once

#include "halley/core/dtype.h"
#include "halley/cuda/gemv/gemv_weight.h"
#include "halley/cuda/library/halley_kernels.h"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/mixed_pack.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// Of x beside a weight in chunks.
DType input_dtype(MixedKind kind);

/// The arrays of a source of a kind in chunks. Throws InputError where they are wrong, or of
/// another kind.
MixedSource mixed_source_of(const halley_kernels_source& source);

/// Of a kind of cuda/gemv; 0 bits: of none of these.
GemvShape gemv_shape_of(const halley_kernels_source& source);

/// Checks the arrays of a source of this shape, and waits until they are packed. Throws InputError
/// where they are wrong, UnsupportedError where the shape or the GPU has no kernel.
GemvWeight pack_gemv(const CudaContext& context, const halley_kernels_source& source,
                     const GemvShape& shape);

}  // namespace halley::cuda
