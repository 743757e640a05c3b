// What a kernel may do with memory before griddepcontrol_wait() (pdl_launch.cuh).
//
// Norms, MLP functions, rotations and the first operations of a step have few blocks, and little to
// do but wait for loads. They let the next kernel start first of all: the next product's weights
// are on their way then while they run. Nothing is known of the kernels before them until they have
// waited, so that they read constants alone before that; what kernels wrote long ago they bring to
// the L2 cache, which it has left meanwhile for the weights in between.
#pragma once

namespace halley {

/// Four constants, 16-byte aligned. The assembler moves weaker loads behind the wait.
__device__ inline float4 read_ahead(const float* from) {
  float4 x;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];\n"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(from)
               : "memory");
  return x;
}

/// What one fetch brings: a sector of the L2 cache.
inline constexpr int kFetchedBytes = 32;

/// Brings the sector of `from` to the L2 cache, where whoever writes it meanwhile will write it.
__device__ inline void fetch_ahead(const void* from) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from) : "memory");
}

}  // namespace halley
