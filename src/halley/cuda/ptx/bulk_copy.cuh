// Bulk copies (TMA): cp.async.bulk of bytes and of boxes of a tensor map, and the async proxy.
//
// Loads go to shared memory of this CTA; `barrier` is the mbarrier that counts their bytes. A box
// of a tensor map begins at the coordinates, the fastest dimension first; elements outside of the
// tensor become zero, and are not stored.
#pragma once

#include <cstdint>

namespace halley::ptx {

/// Cache policy of accesses whose lines the L2 cache evicts first.
__device__ __forceinline__ uint64_t createpolicy_evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// The policy of createpolicy_evict_first() as a constant.
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000;

/// Copies `num_bytes`, a multiple of 16 as both addresses are.
__device__ __forceinline__ void cp_async_bulk(uint32_t to, const void* from, int num_bytes,
                                              uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(num_bytes), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk(uint32_t to, const void* from, int num_bytes,
                                              uint32_t barrier, uint64_t cache_policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(num_bytes), "r"(barrier), "l"(cache_policy)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_2d(uint32_t to, const void* map, int x, int y,
                                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_3d(uint32_t to, const void* map, int3 at,
                                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_3d(uint32_t to, const void* map, int3 at,
                                                        uint32_t barrier, uint64_t cache_policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier), "l"(cache_policy)
      : "memory");
}
/// The box begins at 0 of the three fastest dimensions, and at `at` of the other two.
__device__ __forceinline__ void cp_async_bulk_tensor_5d(uint32_t to, const void* map, int2 at,
                                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %2, %2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(0), "r"(at.x), "r"(at.y), "r"(barrier)
      : "memory");
}

/// The opposite direction: a box from shared memory, counted by bulk groups.
__device__ __forceinline__ void cp_async_bulk_tensor_2d_store(const void* map, int x, int y,
                                                              uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
      "r"(x), "r"(y), "r"(from)
      : "memory");
}
/// The thread's bulk stores since the last call become one group.
__device__ __forceinline__ void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// .read: waits until at most kNumLeft of the thread's newest groups still read their sources.
template <int kNumLeft>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kNumLeft) : "memory");
}

/// The first bulk copy with a tensor map waits for the map itself.
__device__ __forceinline__ void prefetch_tensormap(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Orders what copies wrote of a tensor map in device memory before this thread's bulk copies with
/// it: needed for maps that are not parameters of the kernel.
__device__ __forceinline__ void fence_proxy_tensormap_acquire(const void* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

/// Orders the thread's generic-proxy accesses to shared memory before later async-proxy accesses:
/// bulk copies and wgmma.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// The same of device memory.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace halley::ptx
