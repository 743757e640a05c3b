// Mbarriers: 8 bytes of shared memory that count arrivals of threads and bytes of copies.
//
// A phase completes when the pending arrivals are zero and all expected bytes have landed. Waits
// name the phase by its parity, 0 first. Addresses are those of shared memory, 32 bits.
#pragma once

#include <cstdint>

namespace halley::ptx {

/// Each phase has `num_arrivals` arrivals.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals)
               : "memory");
}
/// Makes initialized mbarriers visible to other threads of the cluster and to the async proxy.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// One arrival; it releases what the thread stored to the CTA.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// `barrier` lies in the shared memory of any CTA of the cluster (mapa()).
__device__ __forceinline__ void mbarrier_arrive_release_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}
/// One arrival, and the phase completes only after copies of `num_bytes` more.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, int num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(num_bytes)
               : "memory");
}

/// 1 if the phase has completed, else 0. Does not suspend the thread. The result is a number: a
/// bool that lives on while wgmma is in flight is spilled as a predicate.
__device__ __forceinline__ uint32_t mbarrier_test_wait_parity(uint32_t barrier, uint32_t parity) {
  uint32_t result;
  asm volatile(
      "{.reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.b32 %0, 1, 0, done;}"
      : "=r"(result)
      : "r"(barrier), "r"(parity)
      : "memory");
  return result;
}

/// Whether the phase has completed; it may suspend the thread until then, or until a time limit.
__device__ __forceinline__ bool mbarrier_try_wait_parity(uint32_t barrier, uint32_t parity) {
  uint32_t result;
  asm volatile(
      "{.reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;}"
      : "=r"(result)
      : "r"(barrier), "r"(parity)
      : "memory");
  return result != 0;
}
/// Returns when the phase has completed. The loop around try_wait is a part of the assembly: around
/// a loop of C++ ptxas finds hazards of wgmma in flight, and serialises it.
__device__ __forceinline__ void mbarrier_wait_parity(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
/// The same, and acquires what other CTAs of the cluster released.
__device__ __forceinline__ void mbarrier_wait_parity_acquire_cluster(uint32_t barrier,
                                                                     uint32_t parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace halley::ptx
