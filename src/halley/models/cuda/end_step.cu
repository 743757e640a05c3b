#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/device_span.cuh"
#include "halley/models/cuda/end_step.h"

namespace halley::cuda {
namespace {

__global__ void end_kernel(DeviceSpan* span) { end_span(*span); }

}  // namespace

void end_step(const CudaContext& context, DeviceSpan* span) {
  end_kernel<<<1, 1, 0, context.stream.get()>>>(span);
  check_launch("end of a step");
}

}  // namespace halley::cuda
