// Copies of weights that a step reads once, past what the L2 cache should keep.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// As start_bulk_copy(), of lines that the L2 cache gives up first. Weights pass it once a step,
/// and without this take along what comes again in every layer, such as the kernels' code. On an
/// H200 a layer of Llama-3 8B and one row takes 1.3 to 1.8 us less with it, of about 50.
__device__ __forceinline__ void start_weight_copy(uint32_t to, const void* from, int num_bytes,
                                                  uint32_t barrier) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(num_bytes), "r"(barrier), "l"(policy)
      : "memory");
}

}  // namespace halley::cuda
