// Launches that may begin before the kernel ahead of them has ended.
#pragma once

#include <cuda_runtime_api.h>

#include "halley/cuda/runtime/cuda_check.h"

namespace halley::cuda {

struct HopperLaunch {
  int num_blocks = 1;
  int num_threads = 1;
  int num_ranks = 1;  // blocks of a cluster
  int shared_bytes = 0;
  /// The kernel must call ptx::griddepcontrol_wait() before it reads what others write, or writes.
  bool starts_early = false;
  cudaStream_t stream = nullptr;
};

template <typename... Params, typename... Args>
void launch_hopper_kernel(void (*kernel)(Params...), const HopperLaunch& launch,
                          const Args&... args) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (launch.starts_early) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (launch.num_ranks > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(launch.num_ranks), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(launch.num_blocks));
  config.blockDim = dim3(static_cast<unsigned>(launch.num_threads));
  config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
  config.stream = launch.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check_cuda(cudaLaunchKernelEx(&config, kernel, args...), "launch of mixed_gemm");
}

}  // namespace halley::cuda
