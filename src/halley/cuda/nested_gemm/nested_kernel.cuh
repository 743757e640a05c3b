// The nested product: y[m,n] = sum over k of x[m,k] w[n,k], w in f16 from two planes of bytes.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_launch.cuh"
#include "halley/cuda/nested_gemm/nested_consumer.cuh"

namespace halley::cuda {

/// Two warpgroups multiply, two warps of the third copy.
template <int kTokens, int kCluster>
__global__ void __launch_bounds__(kTileThreads, 1)
    nested_kernel(const __grid_constant__ NestedMaps maps,
                  const __grid_constant__ NestedArguments args) {
  extern __shared__ uint4 shared_memory[];
  const TileArguments& tile = args.tile;
  const TileBlock block = start_tile_block<kCluster>(tile, shared_memory);
  if (threadIdx.x >= kTileConsumers) {
    give_registers<40>();
    if (threadIdx.x == kTileConsumers) {
      produce_planes<kCluster>(maps.upper, args, block);
    } else if (threadIdx.x == kTileConsumers + 32) {
      produce_tokens<kTokens, kCluster>(maps.x, tile, block);
    }
  } else {
    take_registers<232>();
    wait_for_previous_kernel();
    const TileThread self = tile_thread();
    TileStage stage;
    TileSegment segment = block.first(tile);
    while (segment.num_chunks > 0) {
      TileSums<kTokens> sums;
      NestedConsumer<kTokens, kCluster>::run(tile, block.ring, self, segment.num_chunks, &stage,
                                             sums);
      const TilePlace place = tile_place<kTokens, kCluster>(tile, self, block.rank, segment.tile);
      TileEpilogue<kTokens, kCluster>::finish(tile, block, self, place,
                                              segment.num_chunks == tile.schedule.num_chunks, sums);
      segment = block.next(tile, segment);
    }
  }
  end_tile_block<kCluster>(tile);
}

template <int kTokens, int kCluster>
void launch_nested(const NestedMaps& maps, const NestedArguments& args, cudaStream_t stream) {
  launch_tile_kernel(nested_kernel<kTokens, kCluster>, kCluster, args.tile, stream, maps, args);
}

}  // namespace halley::cuda
