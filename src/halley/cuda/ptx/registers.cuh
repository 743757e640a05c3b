// Registers: how many a warpgroup has, special ones, and values that the compiler may not
// recompute.
#pragma once

#include <cstdint>

namespace halley::ptx {

/// setmaxnreg.inc: waits until the CTA's pool has the registers, then each thread of the calling
/// warpgroup has kCount, a multiple of 8 in [24, 256].
template <int kCount>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
/// setmaxnreg.dec: each thread of the calling warpgroup keeps kCount registers; the CTA's pool gets
/// the others.
template <int kCount>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

/// %globaltimer: nanoseconds of a clock that runs on between kernels.
__device__ __forceinline__ uint64_t globaltimer() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
/// %cluster_ctarank: the CTA's rank in its cluster; 0 without clusters.
__device__ __forceinline__ int cluster_ctarank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
/// %clusterid.x: the cluster's index in the grid; that of the CTA without clusters.
__device__ __forceinline__ int clusterid_x() {
  uint32_t cluster;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(cluster));
  return static_cast<int>(cluster);
}

/// No instruction. The compiler forgets how `value` came about: it keeps it in a register and does
/// not compute it again at each use.
template <typename Int>
__device__ __forceinline__ void opaque(Int& value) {
  static_assert(sizeof(Int) == 4);
  asm volatile("" : "+r"(value));
}

}  // namespace halley::ptx
