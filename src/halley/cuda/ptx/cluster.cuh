// Shared memory of the other CTAs of a cluster.
#pragma once

#include <cstdint>

namespace halley::ptx {

/// The address that shared address `address` of this CTA has in CTA `rank` of the cluster: one of
/// shared::cluster.
__device__ __forceinline__ uint32_t mapa(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

__device__ __forceinline__ void st_shared_cluster_b32(uint32_t to, uint32_t word) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
__device__ __forceinline__ void st_shared_cluster_x4(uint32_t to, const float* from) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(from[0]),
               "f"(from[1]), "f"(from[2]), "f"(from[3])
               : "memory");
}

/// Stores 16 bytes asynchronously; `barrier`, an mbarrier of the same CTA as `to`, counts them.
/// Accumulators of wgmma keep their type: as bits they would be moved first, and wgmma serialised.
__device__ __forceinline__ void st_async_x4(uint32_t to, const int32_t* from, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [%0], {%1,%2,%3,%4}, [%5];" ::
          "r"(to),
      "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void st_async_x4(uint32_t to, const float* from, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::
          "r"(to),
      "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]), "r"(barrier)
      : "memory");
}

}  // namespace halley::ptx
