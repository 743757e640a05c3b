// Begin and end of work on the GPU by its own clock.
#pragma once

#include <cstdint>

namespace halley {

/// Nanoseconds of %globaltimer, which runs on between kernels. Both 0: not measured.
struct DeviceSpan {
  uint64_t begin_ns = 0, end_ns = 0;
};

#ifdef __CUDACC__
__device__ inline uint64_t device_clock_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;\n" : "=l"(now));
  return now;
}

/// One thread of the first kernel calls it.
__device__ inline void begin_span(DeviceSpan& span) {
  span.begin_ns = device_clock_ns();
  span.end_ns = 0;
}

/// Any number of threads of the last kernel call it: the latest counts.
__device__ inline void end_span(DeviceSpan& span) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  atomicMax(reinterpret_cast<unsigned long long*>(&span.end_ns),
            static_cast<unsigned long long>(device_clock_ns()));
}
#endif

}  // namespace halley
