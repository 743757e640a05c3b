// The two threads that fill the ring.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_ring.cuh"
#include "halley/cuda/nested_gemm/nested_arguments.h"
#include "halley/cuda/nested_gemm/nested_layout.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"

namespace halley::cuda {

/// Stages of weights that are copied before the kernel ahead has ended.
inline constexpr int kNestedEarlyStages = 2;

/// Places in both rings. A part of the ring's barriers: planes first, then halves of tokens.
template <int kTokens>
struct NestedPlaces {
  NestedRings rings;

  explicit __device__ __forceinline__ NestedPlaces(const TileArguments& args)
      : rings(nested_rings(kTokens, args.num_stages)) {}
  __device__ __forceinline__ uint32_t planes(const TileRing& ring, int index) const {
    return ring.base + static_cast<uint32_t>(index * kNestedPlanesBytes);
  }
  __device__ __forceinline__ uint32_t half(const TileRing& ring, int index) const {
    return ring.base + static_cast<uint32_t>(rings.planes * kNestedPlanesBytes +
                                             index * nested_half_bytes(kTokens));
  }
  __device__ __forceinline__ int half_part(int index) const { return rings.planes + index; }
};

/// Both planes.
template <int kTokens>
__device__ __forceinline__ void produce_planes(const CUtensorMap& upper_map,
                                               const NestedArguments& args,
                                               const TileBlock& block) {
  const TileArguments& tile = args.tile;
  const NestedPlaces<kTokens> places(tile);
  ptx::PipelineState stage = {0, 1};  // every stage is empty at first
  int num_early = kNestedEarlyStages + 1;
  TileSegment segment = block.first(tile);
  while (segment.num_chunks > 0) {
    const int panel = segment.tile / tile.token_tiles;
    const int64_t chunk = int64_t{panel} * tile.schedule.num_chunks + segment.begin;
    const uint8_t* from = args.lower + chunk * kNestedChunkBytes;
    for (int i = 0; i < segment.num_chunks; ++i) {
      const uint32_t full = block.ring.full(tile, stage.index);
      const uint32_t planes = places.planes(block.ring, stage.index);
      ptx::mbarrier_wait_parity(block.ring.empty(tile, stage.index), stage.parity);
      // Weights are constant; but many stages of them would stand in the way of the first inputs.
      if (num_early > 0 && --num_early == 0) ptx::griddepcontrol_wait();
      ptx::mbarrier_arrive_expect_tx(full, 2 * kNestedChunkBytes);
      ptx::cp_async_bulk_tensor_2d(planes, &upper_map, (segment.begin + i) * kNestedInputs,
                                   panel * kTileOutputs, full);
      ptx::cp_async_bulk(planes + kNestedChunkBytes, from, kNestedChunkBytes, full);
      from += kNestedChunkBytes;
      stage.advance(places.rings.planes);
    }
    segment = block.next(tile, segment);
  }
  // Not earlier: blocks of the next kernel would take SMs from this one's copies.
  ptx::griddepcontrol_launch_dependents();
}

/// The tile's tokens.
template <int kTokens>
__device__ __forceinline__ void produce_tokens(const CUtensorMap& x_map, const TileArguments& args,
                                               const TileBlock& block) {
  ptx::griddepcontrol_wait();
  const NestedPlaces<kTokens> places(args);
  ptx::PipelineState stage = {0, 1};
  TileSegment segment = block.first(args);
  while (segment.num_chunks > 0) {
    const int row = segment.tile % args.token_tiles * kTokens;
    for (int i = 0; i < segment.num_chunks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int part = places.half_part(stage.index);
        const uint32_t full = block.ring.full(args, part);
        const uint32_t to = places.half(block.ring, stage.index);
        const int column = (segment.begin + i) * kNestedInputs + half * (kNestedInputs / 2);
        ptx::mbarrier_wait_parity(block.ring.empty(args, part), stage.parity);
        ptx::mbarrier_arrive_expect_tx(full, nested_half_bytes(kTokens));
        ptx::cp_async_bulk_tensor_2d(to, &x_map, column, row, full);
        stage.advance(places.rings.halves);
      }
    }
    segment = block.next(args, segment);
  }
}

}  // namespace halley::cuda
