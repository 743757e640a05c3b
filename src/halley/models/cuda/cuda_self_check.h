// The check at load that a layer on the GPU computes what its weights there say.
#pragma once

#include <cstddef>

#include "halley/core/dtype.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/weights/cuda_linear.h"

namespace halley::cuda {

/// Runs the layer on two rows of synthetic inputs, to outputs of `y_dtype` (the activations' type
/// or f32), and compares some of each section with f64 sums over its rows in device memory. Waits
/// for the GPU. Throws DeviceError that names layer, kernels, output, expected and got.
void self_check(const CudaContext& context, const CudaLinear& linear, DType y_dtype);

/// Bytes that it takes from the workspace.
size_t self_check_bytes(const CudaLinear& linear);

}  // namespace halley::cuda
