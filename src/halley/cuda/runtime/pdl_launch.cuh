// Programmatic dependent launch (PDL): a kernel starts while the one queued before it still runs,
// and waits inside for the results of that kernel. This hides the launch gap and lets the kernel
// prefetch whatever does not depend on the earlier one, above all weights.
#pragma once

#include <cstddef>
#include <type_traits>

#include <cuda_runtime.h>

#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley {

struct LaunchShape {
  dim3 grid = {};
  dim3 block = {};
  size_t shared_bytes = 0;
  unsigned cluster_size = 1;
};

/// Launches a kernel that calls ptx::griddepcontrol_wait() in every thread. `what` names it in
/// messages.
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
  // GPUs before Hopper have neither attribute; their kernels run in stream order.
  config.numAttrs = context.device.compute_major < 9 ? 0 : shape.cluster_size > 1 ? 2 : 1;
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

}  // namespace halley
