// Instructions for clusters: blocks that reach the shared memory of each other.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/hopper_instructions.cuh"

namespace halley::cuda {

/// A barrier of all threads of the cluster, in any order of a warp's threads. Behind it what they
/// wrote before is there.
__device__ __forceinline__ void sync_threads_of_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}

/// Writes to the memory that block `rank` of the cluster has at this address.
__device__ __forceinline__ void store_shared_at(uint32_t address, uint32_t rank,
                                                const float* four) {
  asm volatile(
      "{.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.v4.f32 [there], {%2,%3,%4,%5};}" ::"r"(address),
      "r"(rank), "f"(four[0]), "f"(four[1]), "f"(four[2]), "f"(four[3])
      : "memory");
}

}  // namespace halley::cuda
