// Instructions for clusters: blocks that share what they copy.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/hopper_instructions.cuh"

namespace halley::cuda {

__device__ __forceinline__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ uint32_t cluster_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}

/// A barrier of all threads of the cluster, in any order of a warp's threads. Behind it what they
/// wrote before is there.
__device__ __forceinline__ void sync_threads_of_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release;\n"
      "barrier.cluster.wait.acquire;" ::
          : "memory");
}

/// One arrival at the barrier that block `rank` of the cluster has at this address.
__device__ __forceinline__ void arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier),
      "r"(rank)
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

/// start_box_copy() into the shared memory of all blocks in `ranks` (bits), at the same address of
/// each; bytes count at the barrier of each.
__device__ __forceinline__ void start_shared_box_copy(uint32_t to, const void* map, int column,
                                                      int row, uint32_t barrier, uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(ranks)
      : "memory");
}

}  // namespace halley::cuda
