#include "halley/cuda/runtime/cuda_check.h"

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {

void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw DeviceError(
      str("CUDA: ", call, ": ", cudaGetErrorName(status), ": ", cudaGetErrorString(status)));
}

void check_launch(const char* kernel) { check_cuda(cudaGetLastError(), kernel); }

}  // namespace halley
