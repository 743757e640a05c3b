// Kernels that start while the kernel queued before them still runs, and wait in it for what that
// one writes (programmatic dependent launch): the gap between two kernels goes away, and what does
// not depend on the earlier one, weights above all, can be read ahead.
#pragma once

#include <cstddef>
#include <type_traits>

#include <cuda_runtime.h>

#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley {

/// The next kernel in the stream may start when all blocks have come here or ended. Late, when a
/// block's reads are under way: blocks that start earlier wait in some SMs and not in
/// others, and what they read is then badly shared. Does nothing for a kernel behind it that was
/// not launched by launch_with_pdl(), and on GPUs before Hopper, which have none of this.
__device__ inline void griddepcontrol_launch_dependents() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n");
#endif
}

/// In a kernel launched by launch_with_pdl(), by every thread, before it reads what earlier kernels
/// write and before it writes anything: they are done behind it, and what they wrote is there.
__device__ inline void griddepcontrol_wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

struct LaunchShape {
  dim3 grid = {};
  dim3 block = {};
  size_t shared_bytes = 0;
  unsigned cluster_size = 1;
};

/// Queues a kernel that calls griddepcontrol_wait() in every thread. `what` is for messages.
template <typename... Parameters>
void launch_with_pdl(const CudaContext& context, const char* what, const LaunchShape& shape,
                     void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = shape.cluster_size;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = context.stream.get();
  config.attrs = attributes;
  // GPUs before Hopper know neither; their kernels follow each other in the stream.
  config.numAttrs = context.device.compute_major < 9 ? 0 : shape.cluster_size > 1 ? 2 : 1;
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

}  // namespace halley
