// The end of a step without choices, which end it otherwise.
#pragma once

#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_span.h"

namespace halley::cuda {

/// The span ends when all that was queued before has run.
void end_step(const CudaContext& context, DeviceSpan* span);

}  // namespace halley::cuda
