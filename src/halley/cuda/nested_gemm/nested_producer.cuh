// The two threads that fill the ring.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_ring.cuh"
#include "halley/cuda/nested_gemm/nested_arguments.h"
#include "halley/cuda/nested_gemm/nested_layout.h"

namespace halley::cuda {

/// Stages of weights that are copied before the kernel ahead has ended.
inline constexpr int kNestedEarlyStages = 2;

/// Both planes.
__device__ __forceinline__ void produce_planes(const CUtensorMap& upper_map,
                                               const NestedArguments& args,
                                               const TileBlock& block) {
  const TileArguments& tile = args.tile;
  TileStage stage = {0, 1};  // every stage is empty at first
  int num_early = kNestedEarlyStages + 1;
  TileSegment segment = block.first(tile);
  while (segment.num_chunks > 0) {
    const int panel = segment.tile / tile.token_tiles;
    const int64_t chunk = int64_t{panel} * tile.schedule.num_chunks + segment.begin;
    const uint8_t* from = args.lower + chunk * kNestedChunkBytes;
    for (int i = 0; i < segment.num_chunks; ++i) {
      const int part = stage.index * kNestedParts;
      const uint32_t full = block.ring.full(tile, part);
      const uint32_t planes = block.ring.stage(tile, stage.index);
      wait_barrier(block.ring.empty(tile, part), stage.parity);
      // Weights are constant; but many stages of them would stand in the way of the first inputs.
      if (num_early > 0 && --num_early == 0) wait_for_previous_kernel();
      arrive_expecting(full, 2 * kNestedChunkBytes);
      start_box_copy(planes, &upper_map, (segment.begin + i) * kNestedInputs, panel * kTileOutputs,
                     full);
      start_bulk_copy(planes + kNestedChunkBytes, from, kNestedChunkBytes, full);
      from += kNestedChunkBytes;
      stage.advance(tile.num_stages);
    }
    segment = block.next(tile, segment);
  }
  // Not earlier: blocks of the next kernel would take multiprocessors from this one's copies.
  start_next_kernel();
}

/// The tile's tokens.
template <int kTokens>
__device__ __forceinline__ void produce_tokens(const CUtensorMap& x_map, const TileArguments& args,
                                               const TileBlock& block) {
  wait_for_previous_kernel();
  TileStage stage = {0, 1};
  TileSegment segment = block.first(args);
  while (segment.num_chunks > 0) {
    const int row = segment.tile % args.token_tiles * kTokens;
    for (int i = 0; i < segment.num_chunks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int part = stage.index * kNestedParts + 1 + half;
        const uint32_t full = block.ring.full(args, part);
        const uint32_t to = block.ring.stage(args, stage.index) +
                            static_cast<uint32_t>(kNestedTokensOffset + half * kTokens * 128);
        const int column = (segment.begin + i) * kNestedInputs + half * (kNestedInputs / 2);
        wait_barrier(block.ring.empty(args, part), stage.parity);
        arrive_expecting(full, kTokens * 128);
        start_box_copy(to, &x_map, column, row, full);
      }
      stage.advance(args.num_stages);
    }
    segment = block.next(args, segment);
  }
}

}  // namespace halley::cuda
