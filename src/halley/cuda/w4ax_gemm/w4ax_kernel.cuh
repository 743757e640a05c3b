// The W4Ax product: y[m,n] = sum over blocks b of x_scale[m,b] w_scale[n,b] sum over k in b of
// x[m,k] w[n,k], the inner sums exact.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_launch.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_consumer.cuh"

namespace halley::cuda {

/// Two warpgroups multiply, two warps of the third copy.
template <int kTokens, int kCluster>
__global__ void __launch_bounds__(kTileThreads, 1)
    w4ax_kernel(const __grid_constant__ CUtensorMap x_map,
                const __grid_constant__ W4axArguments args) {
  extern __shared__ uint4 shared_memory[];
  const TileArguments& tile = args.tile;
  const TileBlock block = start_tile_block<kCluster>(tile, shared_memory);
  if (threadIdx.x >= kTileConsumers) {
    give_registers<40>();
    if (threadIdx.x == kTileConsumers) {
      produce_w4ax_weights<kTokens, kCluster>(args, block);
    } else if (threadIdx.x == kTileConsumers + 32) {
      produce_w4ax_tokens<kTokens, kCluster>(x_map, args, block);
    }
  } else {
    take_registers<232>();
    wait_for_previous_kernel();
    const TileThread self = tile_thread();
    TileStage stage;
    if constexpr (W4axConsumer<kTokens, kCluster>::kTakesTurns) begin_turns(self.warpgroup);
    TileSegment segment = block.first(tile);
    while (segment.num_chunks > 0) {
      TileSums<kTokens> sums;
      W4axConsumer<kTokens, kCluster>::run(tile, block.ring, self, segment.num_chunks, &stage,
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
void launch_w4ax(const CUtensorMap& x_map, const W4axArguments& args, cudaStream_t stream) {
  launch_tile_kernel(w4ax_kernel<kTokens, kCluster>, kCluster, args.tile, stream, x_map, args);
}

}  // namespace halley::cuda
