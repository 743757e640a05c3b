// The Hopper product of a packed weight: y[m,n] = sum over k of x[m,k] w[n,k], scaled.
#pragma once

#include <cstdint>
#include <type_traits>

#include "halley/cuda/mixed_gemm/mixed_behind_consumer.cuh"
#include "halley/cuda/mixed_gemm/mixed_epilogue.cuh"
#include "halley/cuda/mixed_gemm/mixed_few_consumer.cuh"
#include "halley/cuda/mixed_gemm/mixed_few_s8_consumer.cuh"
#include "halley/cuda/mixed_gemm/mixed_group_consumer.cuh"
#include "halley/cuda/mixed_gemm/mixed_sharing.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/ptx/registers.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

/// What multiplies a segment: of 16-bit kinds it depends on whether every chunk is one group.
template <class Decoder, int kTokens, int kStrips, bool kIsOneGroup>
using SegmentConsumer = std::conditional_t<
    is_s8(Decoder::kKind),
    std::conditional_t<kTokens == 16, MixedFewS8Consumer<Decoder, kStrips>,
                       MixedConsumer<Decoder, kTokens, kStrips>>,
    std::conditional_t<
        kTokens == 16, MixedFewConsumer<Decoder, kStrips, kIsOneGroup>,
        std::conditional_t<
            !kIsOneGroup, MixedConsumer<Decoder, kTokens, kStrips>,
            std::conditional_t<(kTokens < 64), MixedBehindConsumer<Decoder, kTokens, kStrips>,
                               MixedGroupConsumer<Decoder, kTokens, kStrips>>>>>;

/// Two warpgroups: products, sums of the cluster, rows of Y.
template <class Decoder, int kTokens, int kStrips, bool kIsOneGroup, bool kHasGivers>
__device__ __forceinline__ void consume(const MixedMaps& maps, const MixedArguments& args,
                                        const MixedRing& ring) {
  using Consumer = SegmentConsumer<Decoder, kTokens, kStrips, kIsOneGroup>;
  using Exchange = MixedExchange<Decoder, kTokens, kStrips>;
  using Epilogue = MixedEpilogue<Decoder, kTokens, kStrips>;
  using Sharing = MixedSharing<Decoder, kTokens, kStrips>;
  const int thread = static_cast<int>(threadIdx.x);
  const MixedThread self = {thread, thread / 128, thread % 128, thread % 128 / 32, thread % 32};
  const MixedBlock block = this_block<kHasGivers>();
  const int num_ranks = kHasGivers ? 1 : args.schedule.num_ranks, rank = block.rank;
  // Few tokens are written sooner from registers.
  constexpr bool kWritesBoxes = kTokens > 16;
  uint32_t drained_parity = 0, received_parity = 0;
  bool is_first = true;
  ptx::PipelineState stage;
  ptx::griddepcontrol_wait();
  for (MixedSegment segment = first_segment<kHasGivers>(args.schedule, block);
       segment.num_chunks > 0; segment = next_segment<kHasGivers>(args.schedule, block, segment)) {
    MixedPlace place;
    place.token = args.token_tile(segment.tile) * kTokens;
    place.output = (args.output_tile(segment.tile) * 2 + self.warpgroup) * kStrips * 64;
    place.tokens_left = args.M - place.token;
    place.y_map = &maps.y;
    place.part = Exchange::part_of(args, rank);
    if (num_ranks > 1 && thread == 0) Exchange::expect(args, ring, rank);
    const bool is_left = kHasGivers && is_givers(args.schedule, segment);
    if (!is_left) Epilogue::stage_scales(args, ring, self, place);
    // Known before it is needed.
    const int num_left = kHasGivers && is_owners(args.schedule, segment)
                             ? slots_of(args.schedule, segment.tile).count
                             : 0;
    typename Exchange::Sums sums;
    Consumer::run(args, ring, self, segment.num_chunks, &stage, sums);
    if constexpr (kHasGivers) {
      if (is_left) {
        Sharing::leave(args, self, segment.tile, sums);
        continue;
      }
      Sharing::add(args, ring, self, num_left, &stage, sums);
    }
    if (num_ranks > 1) {
      if (is_first) {
        ptx::barrier_cluster_wait_aligned();  // the others' barriers are there
      } else {
        ptx::mbarrier_wait_parity_acquire_cluster(ring.drained(args), drained_parity);
        drained_parity ^= 1;
      }
      is_first = false;
      Exchange::send(args, ring, self, rank, sums);
      ptx::mbarrier_wait_parity_acquire_cluster(ring.received(args), received_parity);
      received_parity ^= 1;
      if (kWritesBoxes && args.has_y_map) {
        Epilogue::write_shared_boxes(args, ring, self, place);
      } else {
        Epilogue::write_shared_numbers(args, ring, self, place);
      }
      // Not after the last tile: nobody may write to a block that has left.
      if (next_segment<kHasGivers>(args.schedule, block, segment).num_chunks > 0) {
        Exchange::release(args, ring, self, rank);
      }
    } else if (kWritesBoxes && args.has_y_map) {
      Epilogue::write_boxes(args, ring, self, place, sums);
    } else {
      Epilogue::write_numbers(args, ring, self, place, sums);
    }
  }
  if (num_ranks > 1 && is_first) ptx::barrier_cluster_wait_aligned();
  if (kWritesBoxes && thread % 128 == 0) ptx::cp_async_bulk_wait_group_read<0>();
}

/// What the compiler needs to know of a tile, as numbers.
template <int kTokens, int kOutputs>
struct MixedTileTraits {
  static constexpr MixedTile kTile = {kTokens, kOutputs};
  static constexpr int kThreads = num_threads(kTile);
  static constexpr int kBlocks = is_small(kTile) ? 2 : 1;  // of an SM
};

/// The warps that copy: weights, then what givers have left.
template <class Decoder, int kTokens, int kOutputs, bool kHasGivers>
__device__ __forceinline__ void copy_weights(const MixedArguments& args, const MixedRing& ring) {
  const ptx::PipelineState stage = produce_weights<kOutputs, kHasGivers>(args, ring);
  if constexpr (kHasGivers) {
    const int tile = owned_tile(args.schedule, this_block<kHasGivers>());
    if (tile >= 0) {
      MixedSharing<Decoder, kTokens, kOutputs / 128>::produce(args, ring, tile, stage);
    }
    __syncwarp();
  }
}

/// Barriers beside those of the warpgroups: the ring is there, for all and for warps that copy.
inline constexpr int kRingForAll = 3;
inline constexpr int kRingForCopies = 4;

/// Two warpgroups multiply, two warps copy.
template <class Decoder, int kTokens, int kOutputs>
__global__ void __launch_bounds__(MixedTileTraits<kTokens, kOutputs>::kThreads,
                                  MixedTileTraits<kTokens, kOutputs>::kBlocks)
    mixed_kernel(const __grid_constant__ MixedMaps maps,
                 const __grid_constant__ MixedArguments args) {
  constexpr bool kMovesRegisters = MixedTileTraits<kTokens, kOutputs>::kBlocks == 1;
  extern __shared__ uint4 shared_memory[];
  MixedRing ring;
  ring.base = (ptx::cvta_to_shared(shared_memory) + kStageAlignment - 1) &
              ~static_cast<uint32_t>(kStageAlignment - 1);
  ptx::opaque(ring.base);  // else it is computed again and again
  const int thread = static_cast<int>(threadIdx.x);
  const bool has_others = args.schedule.num_ranks > 1;
  // What blocks without givers run has nothing of what others need: it would be slower.
  constexpr bool kMayHaveGivers = can_have_givers(Decoder::kKind, {kTokens, kOutputs});
  const bool has_givers = kMayHaveGivers && args.schedule.num_givers > 0;
  // Copies start as soon as the ring is there, and nobody else's wait holds them up.
  if (thread >= kConsumerThreads) {
    const int warp = thread / 32 - kConsumerThreads / 32;
    if (warp < 2) {
      if (warp == 0) {
        init_full_stages(args, ring);
      } else {
        if (thread % 32 == 0) {
          ptx::prefetch_tensormap(&maps.x);
          if (args.has_y_map) ptx::prefetch_tensormap(&maps.y);
        }
        init_empty_stages(args, ring);
      }
      ptx::bar_sync<64>(kRingForCopies);
    }
    ptx::bar_arrive<MixedTileTraits<kTokens, kOutputs>::kThreads>(kRingForAll);
    // Waited for where the first sums are sent.
    if (has_others) ptx::barrier_cluster_arrive_relaxed_aligned();
    if constexpr (kMovesRegisters) ptx::setmaxnreg_dec<40>();
    if (warp == 0) {
      if (has_givers) {
        copy_weights<Decoder, kTokens, kOutputs, kMayHaveGivers>(args, ring);
      } else {
        copy_weights<Decoder, kTokens, kOutputs, false>(args, ring);
      }
      // Not earlier: blocks of the next kernel would take SMs from this one's copies.
      ptx::griddepcontrol_launch_dependents();
    } else if (thread == kConsumerThreads + 32) {
      if (has_givers) {
        produce_activations<Decoder::kKind, kTokens, kMayHaveGivers>(maps.x, args, ring);
      } else {
        produce_activations<Decoder::kKind, kTokens, false>(maps.x, args, ring);
      }
    }
    __syncwarp();
    if (has_others) ptx::barrier_cluster_wait_aligned();
  } else {
    ptx::bar_sync<MixedTileTraits<kTokens, kOutputs>::kThreads>(kRingForAll);
    if (has_others) ptx::barrier_cluster_arrive_relaxed_aligned();
    if constexpr (kMovesRegisters) ptx::setmaxnreg_inc<232>();
    // Not for each segment: with both around the same sums ptxas serialises the tensor cores.
    constexpr int kStrips = kOutputs / 128;
    constexpr bool kIsS8 = is_s8(Decoder::kKind);
    if (has_givers) {
      consume<Decoder, kTokens, kStrips, !kIsS8, kMayHaveGivers>(maps, args, ring);
    } else if (!kIsS8 && 1 << args.group_shift == kChunkSteps) {
      consume<Decoder, kTokens, kStrips, !kIsS8, false>(maps, args, ring);
    } else {
      consume<Decoder, kTokens, kStrips, false, false>(maps, args, ring);
    }
  }
}

template <class Decoder, int kTokens, int kOutputs>
void launch_mixed(const CudaContext& context, const MixedMaps& maps, const MixedArguments& args) {
  const int cluster_size = args.schedule.has_pairs ? 2 : args.schedule.num_ranks;
  launch_kernel(context, "mixed_gemm",
                {.grid = dim3(static_cast<unsigned>(args.schedule.num_blocks)),
                 .block = dim3(MixedTileTraits<kTokens, kOutputs>::kThreads),
                 .shared_bytes = static_cast<size_t>(args.shared.num_bytes),
                 .cluster_size = static_cast<unsigned>(cluster_size),
                 .pdl = args.starts_early},
                mixed_kernel<Decoder, kTokens, kOutputs>, maps, args);
}

}  // namespace halley::cuda
