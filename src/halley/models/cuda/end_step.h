// Ends the time span of a step that samples no token; sampling ends the span of the others.
#pragma once

#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_span.h"

namespace halley::cuda {

/// The span ends when all work queued before has run.
void end_step(const CudaContext& context, DeviceSpan* span);

}  // namespace halley::cuda
