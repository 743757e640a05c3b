// CUDA error codes as exceptions that name the call.
#pragma once

#include <cuda_runtime_api.h>

namespace halley {

/// Throws DeviceError "CUDA: <call>: <error name>: <its text>" unless `status` is cudaSuccess.
/// `call` names the operation and its object: "copy of layers.3.qkv".
void check_cuda(cudaError_t status, const char* call);

/// After a kernel launch: check_cuda() of the launch's own error. Errors inside the kernel show at
/// a later call.
void check_launch(const char* kernel);

}  // namespace halley
