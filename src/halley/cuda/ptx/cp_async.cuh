// cp.async: copies of a thread from device to shared memory past the registers.
#pragma once

#include <cstdint>

namespace halley::ptx {

/// How much of the device memory around an access the L2 cache fetches with it.
struct NoL2Prefetch {
  static constexpr char kQualifier[] = "";
};
struct L2Prefetch128B {
  static constexpr char kQualifier[] = ".L2::128B";
};

/// Copies 16 bytes, aligned to 16, past the L1 cache.
template <class Prefetch = NoL2Prefetch>
__device__ __forceinline__ void cp_async_cg(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global%2 [%0], [%1], 16;" ::"r"(to), "l"(from),
               "C"(Prefetch::kQualifier)
               : "memory");
}
/// Copies the first `src_size` bytes, and zeros for the others.
template <class Prefetch = NoL2Prefetch>
__device__ __forceinline__ void cp_async_cg(uint32_t to, const void* from, int src_size) {
  asm volatile("cp.async.cg.shared.global%3 [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(src_size), "C"(Prefetch::kQualifier)
               : "memory");
}
/// Copies kBytes, 4 or 8, aligned to as many.
template <int kBytes, class Prefetch = NoL2Prefetch>
__device__ __forceinline__ void cp_async_ca(uint32_t to, const void* from) {
  static_assert(kBytes == 4 || kBytes == 8);
  asm volatile("cp.async.ca.shared.global%3 [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes),
               "C"(Prefetch::kQualifier)
               : "memory");
}
/// Copies the first `src_size` bytes, and zeros for the others.
template <int kBytes>
__device__ __forceinline__ void cp_async_ca(uint32_t to, const void* from, int src_size) {
  static_assert(kBytes == 4 || kBytes == 8);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
               "r"(src_size)
               : "memory");
}

/// The thread's copies since the last call become one group, possibly empty.
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most kNumLeft of the thread's newest groups are in flight.
template <int kNumLeft>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNumLeft) : "memory");
}
/// The mbarrier gets this thread's arrival when all its copies so far have completed. .noinc: the
/// arrival is one of those that mbarrier_init() counts.
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace halley::ptx
