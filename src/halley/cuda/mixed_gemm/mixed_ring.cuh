// The ring of stages in shared memory and the two warps that fill it.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_arguments.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/registers.cuh"

namespace halley::cuda {

/// Stages of weights that are copied before the kernel ahead has ended.
inline constexpr int kEarlyStages = 2;

/// Addresses of shared memory.
struct MixedRing {
  uint32_t base = 0;  // a multiple of kStageAlignment

  __device__ uint32_t x_stage(const MixedArguments& args, int stage) const {
    return base + static_cast<uint32_t>(stage * args.shared.x_stage_bytes);
  }
  __device__ uint32_t w_stage(const MixedArguments& args, int stage) const {
    return base + static_cast<uint32_t>(args.shared.weights + stage * args.shared.w_stage_bytes);
  }
  __device__ uint32_t full(const MixedArguments& args, int stage) const {
    return base + static_cast<uint32_t>(args.shared.barriers + stage * 8);
  }
  __device__ uint32_t empty(const MixedArguments& args, int stage) const {
    return full(args, stage + args.num_stages);
  }
  /// Sums of other blocks of the cluster have come.
  __device__ uint32_t received(const MixedArguments& args) const {
    return full(args, 2 * args.num_stages);
  }
  /// Other blocks of the cluster have read what this one sent.
  __device__ uint32_t drained(const MixedArguments& args) const {
    return full(args, 2 * args.num_stages + 1);
  }
};

/// With givers clusters, if there are any, are pairs that share no tile.
template <bool kHasGivers>
__device__ __forceinline__ MixedBlock this_block() {
  if constexpr (kHasGivers) return {static_cast<int>(blockIdx.x), 0};
  return {ptx::clusterid_x(), ptx::cluster_ctarank()};
}

/// One warp, of which one thread does it: addresses that differ between lanes would be taken one
/// by one, which takes longer.
__device__ __forceinline__ void init_full_stages(const MixedArguments& args,
                                                 const MixedRing& ring) {
  if (threadIdx.x % 32 == 0) {
#pragma unroll 4
    for (int i = 0; i < args.num_stages; ++i) ptx::mbarrier_init(ring.full(args, i), 1);
  }
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

/// Another warp: the other barriers.
__device__ __forceinline__ void init_empty_stages(const MixedArguments& args,
                                                  const MixedRing& ring) {
  constexpr int kWarps = kConsumerThreads / 32;
  if (threadIdx.x % 32 == 0) {
#pragma unroll 4
    for (int i = 0; i < args.num_stages; ++i) ptx::mbarrier_init(ring.empty(args, i), kWarps);
    ptx::mbarrier_init(ring.received(args), 1);
    ptx::mbarrier_init(ring.drained(args), max(1, args.schedule.num_ranks - 1) * kWarps);
  }
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async_shared();
  __syncwarp();
}

/// One warp: lane i copies chunk i of the tile's outputs. Also announces the bytes of both copies.
/// Gives the stage behind the last one.
template <int kOutputs, bool kHasGivers>
__device__ __forceinline__ ptx::PipelineState produce_weights(const MixedArguments& args,
                                                              const MixedRing& ring) {
  constexpr int kChunks = kOutputs / kChunkOutputs;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int stage_bytes = args.shared.x_stage_bytes + args.shared.w_stage_bytes;
  ptx::PipelineState stage = {0, 1};  // every stage is empty at first
  int num_early = kEarlyStages + 1;
  const MixedBlock block = this_block<kHasGivers>();
  MixedSegment segment = first_segment<kHasGivers>(args.schedule, block);
  while (segment.num_chunks > 0) {
    // A last tile may be half behind N: its outputs are read from where there are some, and unused.
    const int panel =
        min(args.output_tile(segment.tile) * kChunks + min(lane, kChunks - 1), args.num_panels - 1);
    const int64_t chunk = int64_t{panel} * args.schedule.num_chunks + segment.begin;
    const uint8_t* from = args.weights + chunk * args.chunk_bytes;
    for (int i = 0; i < segment.num_chunks; ++i) {
      const uint32_t full = ring.full(args, stage.index);
      ptx::mbarrier_wait_parity(ring.empty(args, stage.index), stage.parity);
      // Weights are constant; but many stages of them would stand in the way of the first inputs.
      if (num_early > 0 && --num_early == 0) ptx::griddepcontrol_wait();
      if (lane == 0) ptx::mbarrier_arrive_expect_tx(full, stage_bytes);
      __syncwarp();
      if (lane < kChunks) {
        ptx::cp_async_bulk(
            ring.w_stage(args, stage.index) + static_cast<uint32_t>(lane * args.chunk_bytes), from,
            args.chunk_bytes, full);
      }
      from += args.chunk_bytes;
      stage.advance(args.num_stages);
    }
    segment = next_segment<kHasGivers>(args.schedule, block, segment);
  }
  return stage;
}

/// One thread: activations as boxes of 128 bytes a token.
template <MixedKind kKind, int kTokens, bool kHasGivers>
__device__ __forceinline__ void produce_activations(const CUtensorMap& x_map,
                                                    const MixedArguments& args,
                                                    const MixedRing& ring) {
  ptx::griddepcontrol_wait();
  ptx::PipelineState stage = {0, 1};
  const MixedBlock block = this_block<kHasGivers>();
  MixedSegment segment = first_segment<kHasGivers>(args.schedule, block);
  while (segment.num_chunks > 0) {
    const int row = args.token_tile(segment.tile) * kTokens;
    for (int i = 0; i < segment.num_chunks; ++i) {
      const uint32_t full = ring.full(args, stage.index), to = ring.x_stage(args, stage.index);
      const int column = (segment.begin + i) * kChunkInputs;
      ptx::mbarrier_wait_parity(ring.empty(args, stage.index), stage.parity);
      ptx::cp_async_bulk_tensor_2d(to, &x_map, column, row, full);
      if constexpr (!is_s8(kKind)) {
        ptx::cp_async_bulk_tensor_2d(to + kTokens * 128, &x_map, column + 64, row, full);
      }
      stage.advance(args.num_stages);
    }
    segment = next_segment<kHasGivers>(args.schedule, block, segment);
  }
}

}  // namespace halley::cuda
