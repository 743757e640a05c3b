// The sums of a tile that its owner and givers share: givers leave theirs in memory, that is in
// the L2 cache, and the owner adds them to its own.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_consumer.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"

namespace halley::cuda {

template <class Decoder, int kTokens, int kStrips>
struct MixedSharing {
  using Sum = typename Decoder::Sum;
  using Sums = typename MixedConsumer<Decoder, kTokens, kStrips>::Sums;
  static constexpr int kVectors = kTokens / 8 * kStrips;
  static constexpr int kStageVectors = stage_vectors(Decoder::kKind, {kTokens, kStrips * 128});
  static_assert(kVectors % kStageVectors == 0);

  /// Behind ptx::griddepcontrol_wait(): an earlier launch has read its slots and counters.
  static __device__ __forceinline__ void leave(const MixedArguments& args, const MixedThread& self,
                                               int tile, const Sums& sums) {
    const int slot =
        slot_of(args.schedule, giver_part(args.schedule, static_cast<int>(blockIdx.x)), tile);
    Sum* to = static_cast<Sum*>(args.left_sums) +
              (int64_t{slot} * (kVectors * kConsumerThreads) + self.thread) * 4;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      ptx::st_global_cg_x4(to + v * kConsumerThreads * 4, &sums[v % kStrips][v / kStrips * 4]);
    }
    ptx::fence_proxy_async_global();
    __syncwarp();
    if (self.lane == 0) ptx::red_add_release_gpu(args.counters + slot, 1);
  }

  /// One warp: what givers have left takes the way of inputs and weights, in their order. Givers
  /// wait for no block, and have the lowest numbers: devices start blocks in that order, though
  /// CUDA does not promise it, so that this ends also where not all blocks find room at once.
  static __device__ __forceinline__ void produce(const MixedArguments& args, const MixedRing& ring,
                                                 int tile, ptx::PipelineState stage) {
    if (threadIdx.x % 32 != 0) return;
    // Which may have used the counters; with few stages nobody in this warp has waited yet.
    ptx::griddepcontrol_wait();
    const MixedSlots slots = slots_of(args.schedule, tile);
    const auto* from = static_cast<const uint8_t*>(args.left_sums) +
                       int64_t{slots.first} * (kVectors * kVectorBytes);
#pragma unroll 1
    for (int i = 0; i < slots.count; ++i) {
      uint32_t* count = args.counters + slots.first + i;
      while (ptx::ld_acquire_gpu(count) != kConsumerThreads / 32) {
      }
      *count = 0;  // for the next launch
      ptx::fence_proxy_async_global();
#pragma unroll 1
      for (int v = 0; v < kVectors; v += kStageVectors) {
        const uint32_t full = ring.full(args, stage.index);
        ptx::mbarrier_wait_parity(ring.empty(args, stage.index), stage.parity);
        ptx::mbarrier_arrive_expect_tx(full, kStageVectors * kVectorBytes);
        ptx::cp_async_bulk(ring.x_stage(args, stage.index), from, kStageVectors * kVectorBytes,
                           full);
        from += kStageVectors * kVectorBytes;
        stage.advance(args.num_stages);
      }
    }
  }

  static __device__ __forceinline__ void add(const MixedArguments& args, const MixedRing& ring,
                                             const MixedThread& self, int num_left,
                                             ptx::PipelineState* stage, Sums& sums) {
#pragma unroll 1
    for (int i = 0; i < num_left; ++i) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (v % kStageVectors == 0)
          ptx::mbarrier_wait_parity(ring.full(args, stage->index), stage->parity);
        Sum part[4];
        ptx::ld_shared_x4(
            ring.x_stage(args, stage->index) +
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
