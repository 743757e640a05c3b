// The launch of a kernel: clusters, dynamic shared memory, and programmatic dependent launch (PDL),
// by which a kernel starts while the one queued before it still runs, and waits inside for the
// results of that kernel. PDL hides the launch gap and lets the kernel prefetch what does not
// depend on the earlier one, above all weights.
#pragma once

#include <cstddef>
#include <type_traits>

#include <cuda_runtime.h>

#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/shared_bytes.h"

namespace halley {

struct LaunchShape {
  dim3 grid = {};
  dim3 block = {};
  size_t shared_bytes = 0;    // dynamic
  unsigned cluster_size = 1;  // CTAs along x
  /// The kernel calls ptx::griddepcontrol_wait() in every thread. If not, it starts in stream
  /// order.
  bool pdl = true;
};

/// A kernel may take 48 KiB without leave; its static shared memory counts, of which kernels with
/// dynamic shared memory have less than 8 KiB.
inline constexpr size_t kDynamicSharedBytesWithoutLeave = size_t{40} * 1024;

/// `what` names the kernel in messages. Throws DeviceError.
template <typename... Parameters>
void launch_kernel(const CudaContext& context, const char* what, const LaunchShape& shape,
                   void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  if (shape.shared_bytes > kDynamicSharedBytesWithoutLeave) {
    raise_shared_bytes(kernel, static_cast<int>(shape.shared_bytes), what);
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned num_attributes = 0;
  // GPUs before Hopper have neither attribute; their kernels run in stream order.
  const bool is_hopper = context.device.compute_major >= 9;
  if (shape.pdl && is_hopper) {
    cudaLaunchAttribute& attribute = attributes[num_attributes++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster_size > 1 && is_hopper) {
    cudaLaunchAttribute& attribute = attributes[num_attributes++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {shape.cluster_size, 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = context.stream.get();
  config.attrs = attributes;
  config.numAttrs = num_attributes;
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), what);
}

}  // namespace halley
