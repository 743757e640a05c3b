// CUDA's error codes as exceptions that name the call.
#pragma once

#include <cuda_runtime_api.h>

namespace halley {

/// Throws DeviceError "CUDA: <call>: <name of the error>: <its text>" unless `status` is
/// cudaSuccess. `call` names what was asked and of what: "copy of layers.3.qkv".
void check_cuda(cudaError_t status, const char* call);

/// After a kernel launch: check_cuda() of the launch's own error; what the kernel does wrong while
/// it runs shows at a later call.
void check_launch(const char* kernel);

}  // namespace halley
