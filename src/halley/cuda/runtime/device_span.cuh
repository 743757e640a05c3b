// How kernels write a DeviceSpan.
#pragma once

#include <cstdint>

#include "halley/cuda/ptx/registers.cuh"
#include "halley/cuda/runtime/device_span.h"

namespace halley {

/// One thread of the first kernel calls it.
__device__ inline void begin_span(DeviceSpan& span) {
  span.begin_ns = ptx::globaltimer();
  span.end_ns = 0;
}

/// Any number of threads of the last kernel call it: the latest counts.
__device__ inline void end_span(DeviceSpan& span) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  atomicMax(reinterpret_cast<unsigned long long*>(&span.end_ns),
            static_cast<unsigned long long>(ptx::globaltimer()));
}

}  // namespace halley
