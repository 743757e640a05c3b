// Where an operation runs on a GPU: passed explicitly to every launch.
#pragma once

#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley {

/// Matrices that are passed beside it lie in device memory. Launches queue work on the stream and
/// return at once; they take what they need for themselves from the workspace and give it back
/// before they return, which is safe since the stream runs in order. They can be captured.
struct CudaContext {
  const CudaDeviceInfo& device;
  const CudaStream& stream;
  DeviceArena& workspace;
};

}  // namespace halley
