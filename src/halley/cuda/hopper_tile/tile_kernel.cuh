// What a block of any product in tiles does.
#pragma once

#include "halley/cuda/hopper_tile/tile_epilogue.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/registers.cuh"

namespace halley::cuda {

/// Barriers beside those of warpgroups and of their turns: the ring is there.
inline constexpr int kTileRingForAll = 5;
inline constexpr int kTileRingForTokens = 6;

/// Registers of a thread that multiplies and of one that copies.
template <int kBlocks>
struct TileRegisters {
  static constexpr int kConsumer = kBlocks == 1 ? 232 : 104;
  static constexpr int kProducer = kBlocks == 1 ? 40 : 32;
  /// What a launch gives every thread. Whoever takes more than others give waits forever.
  static constexpr int kLaunched = 65536 / (kTileThreads * kBlocks) / 8 * 8;
  static_assert(kConsumer * kTileConsumers + kProducer * (kTileThreads - kTileConsumers) <=
                kLaunched * kTileThreads);
};

/// All of a kernel of kTileThreads threads, kBlocks on an SM. Two warpgroups multiply: they call
/// Consumer::begin(thread) once, then Consumer::run() for each segment, from a Consumer::Place in
/// the ring on. Of two warps of the third, one thread each copies weights and tokens into the ring:
/// fill_weights(block), fill_tokens(block). The first one makes the ring, and copies before all
/// others have come.
template <int kTokens, int kBlocks, typename Consumer, typename FillWeights, typename FillTokens>
__device__ __forceinline__ void run_tile_block(const TileArguments& args, const void* shared_memory,
                                               const FillWeights& fill_weights,
                                               const FillTokens& fill_tokens) {
  using Registers = TileRegisters<kBlocks>;
  const TileBlock block = tile_block(args, shared_memory);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kTileConsumers) {
    const int warp = (thread - kTileConsumers) / 32;
    if (warp == 0) {
      init_tile_ring(args, block.ring);
      ptx::bar_arrive<64>(kTileRingForTokens);
    } else if (warp == 1) {
      ptx::bar_sync<64>(kTileRingForTokens);
    }
    ptx::bar_arrive<kTileThreads>(kTileRingForAll);
    ptx::setmaxnreg_dec<Registers::kProducer>();
    if (thread == kTileConsumers) {
      fill_weights(block);
    } else if (thread == kTileConsumers + 32) {
      fill_tokens(block);
    }
    if (args.split > 1) {  // as consumers in finish_split()
      sync_threads_of_cluster();
      sync_threads_of_cluster();
    }
  } else {
    ptx::bar_sync<kTileThreads>(kTileRingForAll);
    ptx::setmaxnreg_inc<Registers::kConsumer>();
    ptx::griddepcontrol_wait();
    const TileThread self = tile_thread();
    Consumer::begin(self);
    typename Consumer::Place place_in_ring;
    TileSegment segment = block.first(args);
    while (segment.num_chunks > 0) {
      TileSums<kTokens> sums;
      Consumer::run(args, block.ring, self, segment.num_chunks, &place_in_ring, sums);
      const TilePlace place = tile_place<kTokens>(args, self, segment.tile);
      TileEpilogue<kTokens>::finish(args, block, self, place,
                                    segment.num_chunks == args.schedule.num_chunks, sums);
      segment = block.next(args, segment);
    }
  }
}

}  // namespace halley::cuda
