#include "halley/cuda/runtime/device_span.cuh"
#include "halley/cuda/runtime/launch.cuh"
#include "halley/models/cuda/end_step.h"

namespace halley::cuda {
namespace {

__global__ void end_kernel(DeviceSpan* span) { end_span(*span); }

}  // namespace

void end_step(const CudaContext& context, DeviceSpan* span) {
  launch_kernel(context, "end of a step", {.grid = dim3(1), .block = dim3(1), .pdl = false},
                end_kernel, span);
}

}  // namespace halley::cuda
