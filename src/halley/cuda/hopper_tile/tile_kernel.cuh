// What a block of any product in tiles does.
#pragma once

#include "halley/cuda/hopper_tile/tile_epilogue.cuh"

namespace halley::cuda {

/// All of a kernel of kTileThreads threads. Two warpgroups multiply: Consumer::begin(thread) once,
/// then Consumer::run() for each segment. Of two warps of the third, one thread each copies weights
/// and tokens into the ring: fill_weights(block), fill_tokens(block).
template <int kTokens, typename Consumer, typename FillWeights, typename FillTokens>
__device__ __forceinline__ void run_tile_block(const TileArguments& args, const void* shared_memory,
                                               const FillWeights& fill_weights,
                                               const FillTokens& fill_tokens) {
  const TileBlock block = start_tile_block(args, shared_memory);
  if (threadIdx.x >= kTileConsumers) {
    give_registers<40>();
    if (threadIdx.x == kTileConsumers) {
      fill_weights(block);
    } else if (threadIdx.x == kTileConsumers + 32) {
      fill_tokens(block);
    }
    if (args.split > 1) {  // as consumers in finish_split()
      sync_threads_of_cluster();
      sync_threads_of_cluster();
    }
  } else {
    take_registers<232>();
    wait_for_previous_kernel();
    const TileThread self = tile_thread();
    Consumer::begin(self);
    TileStage stage;
    TileSegment segment = block.first(args);
    while (segment.num_chunks > 0) {
      TileSums<kTokens> sums;
      Consumer::run(args, block.ring, self, segment.num_chunks, &stage, sums);
      const TilePlace place = tile_place<kTokens>(args, self, segment.tile);
      TileEpilogue<kTokens>::finish(args, block, self, place,
                                    segment.num_chunks == args.schedule.num_chunks, sums);
      segment = block.next(args, segment);
    }
  }
}

}  // namespace halley::cuda
