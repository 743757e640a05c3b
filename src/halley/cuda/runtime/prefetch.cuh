// Memory accesses that a kernel may issue before griddepcontrol_wait() (pdl_launch.cuh).
//
// Norms, MLP activations, rotations and the first operations of a step have few CTAs, and mostly
// wait for loads. They trigger launch_dependents first of all, so that the next GEMM's weights are
// in flight while they run. Before its own wait a kernel knows nothing about the earlier kernels,
// so it reads only constants; data that kernels wrote long ago it prefetches to L2, from which the
// weights in between have evicted it.
#pragma once

#include <cstdint>

#include "halley/cuda/ptx/memory.cuh"

namespace halley {

/// Loads four constants, 16-byte aligned. The assembler would move a weaker load after the wait.
__device__ inline float4 ld_relaxed_v4(const float* from) {
  float4 x;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];\n"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(from)
               : "memory");
  return x;
}

/// Bytes of one prefetch: a sector of the L2 cache.
inline constexpr int kL2SectorBytes = 32;

/// Prefetches the sector of `from` to L2. Later writes to it hit the L2 cache too.
__device__ inline void prefetch_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from) : "memory");
}

/// Loads four constants, 16-byte aligned. ptxas would move a weaker load after the wait.
__device__ __forceinline__ float4 load_constants(const float* from) {
  uint32_t words[4];
  ptx::ld_global<ptx::RelaxedGpu, 4>(from, words);
  return {__uint_as_float(words[0]), __uint_as_float(words[1]), __uint_as_float(words[2]),
          __uint_as_float(words[3])};
}

}  // namespace halley
