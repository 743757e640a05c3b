// The sums of a tile that its owner and givers share: givers leave theirs in memory, that is in
// the L2 cache, and the owner adds them to its own.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"

namespace halley::cuda {

/// Memory that blocks of several SMs use stays in the L2 cache.
__device__ __forceinline__ void store_global_four(int32_t* to, const int32_t* from) {
  asm volatile("st.global.cg.v4.s32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(from[0]), "r"(from[1]),
               "r"(from[2]), "r"(from[3])
               : "memory");
}
__device__ __forceinline__ void store_global_four(float* to, const float* from) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(from[0]), "f"(from[1]),
               "f"(from[2]), "f"(from[3])
               : "memory");
}
/// Counts one, behind all that the warp has stored before its barrier.
__device__ __forceinline__ void count_release(uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* counter) {
  uint32_t number;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(number) : "l"(counter) : "memory");
  return number;
}

/// Orders accesses of threads and of the copy engine to memory.
__device__ __forceinline__ void fence_copies_of_memory() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

template <class Decoder, int kTokens, int kStrips>
struct MixedSharing {
  using Sum = typename Decoder::Sum;
  using Sums = typename MixedConsumer<Decoder, kTokens, kStrips>::Sums;
  static constexpr int kVectors = kTokens / 8 * kStrips;
  static constexpr int kStageVectors = stage_vectors(Decoder::kKind, {kTokens, kStrips * 128});
  static_assert(kVectors % kStageVectors == 0);

  /// Behind griddepcontrol_wait(): an earlier launch has read its slots and counters.
  static __device__ __forceinline__ void leave(const MixedArguments& args, const MixedThread& self,
                                               int tile, const Sums& sums) {
    const int slot =
        slot_of(args.schedule, giver_part(args.schedule, static_cast<int>(blockIdx.x)), tile);
    Sum* to = static_cast<Sum*>(args.left_sums) +
              (int64_t{slot} * (kVectors * kConsumerThreads) + self.thread) * 4;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      store_global_four(to + v * kConsumerThreads * 4, &sums[v % kStrips][v / kStrips * 4]);
    }
    fence_copies_of_memory();
    __syncwarp();
    if (self.lane == 0) count_release(args.counters + slot);
  }

  /// One warp: what givers have left takes the way of inputs and weights, in their order. Givers
  /// wait for no block, and have the lowest numbers: devices start blocks in that order, though
  /// CUDA does not promise it, so that this ends also where not all blocks find room at once.
  static __device__ __forceinline__ void produce(const MixedArguments& args, const MixedRing& ring,
                                                 int tile, MixedStage stage) {
    if (threadIdx.x % 32 != 0) return;
    // Which may have used the counters; with few stages nobody in this warp has waited yet.
    griddepcontrol_wait();
    const MixedSlots slots = slots_of(args.schedule, tile);
    const auto* from = static_cast<const uint8_t*>(args.left_sums) +
                       int64_t{slots.first} * (kVectors * kVectorBytes);
#pragma unroll 1
    for (int i = 0; i < slots.count; ++i) {
      uint32_t* count = args.counters + slots.first + i;
      while (load_acquire(count) != kConsumerThreads / 32) {
      }
      *count = 0;  // for the next launch
      fence_copies_of_memory();
#pragma unroll 1
      for (int v = 0; v < kVectors; v += kStageVectors) {
        const uint32_t full = ring.full(args, stage.index);
        wait_barrier(ring.empty(args, stage.index), stage.parity);
        arrive_expecting(full, kStageVectors * kVectorBytes);
        start_bulk_copy(ring.x_stage(args, stage.index), from, kStageVectors * kVectorBytes, full);
        from += kStageVectors * kVectorBytes;
        stage.advance(args.num_stages);
      }
    }
  }

  static __device__ __forceinline__ void add(const MixedArguments& args, const MixedRing& ring,
                                             const MixedThread& self, int num_left,
                                             MixedStage* stage, Sums& sums) {
#pragma unroll 1
    for (int i = 0; i < num_left; ++i) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (v % kStageVectors == 0) wait_barrier(ring.full(args, stage->index), stage->parity);
        Sum part[4];
        load_four(ring.x_stage(args, stage->index) +
                      static_cast<uint32_t>(v % kStageVectors * kVectorBytes + self.thread * 16),
                  part);
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[v % kStrips][v / kStrips * 4 + e] += part[e];
        if (v % kStageVectors == kStageVectors - 1) {
          MixedConsumer<Decoder, kTokens, kStrips>::release(args, ring, self, stage->index);
          stage->advance(args.num_stages);
        }
      }
    }
  }
};

}  // namespace halley::cuda
