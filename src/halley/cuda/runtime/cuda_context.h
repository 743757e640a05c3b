// The device, stream and workspace of an operation, passed explicitly to every launch.
#pragma once

#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/device_arena.h"

namespace halley {

/// Matrices that are passed with it lie in device memory. Launches queue work on the stream and
/// return immediately. They take scratch memory from the workspace and release it before they
/// return, which is safe since the stream runs in order. They are capturable.
struct CudaContext {
  const CudaDeviceInfo& device;
  const CudaStream& stream;
  DeviceArena& workspace;
};

}  // namespace halley
