// The two threads that fill the ring.
#pragma once

#include <cstdint>

#include "halley/cuda/hopper_tile/tile_ring.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"
#include "halley/cuda/w4ax_gemm/w4ax_arguments.h"

namespace halley::cuda {

/// Stages of weights that are copied before the kernel ahead has ended.
inline constexpr int kW4axEarlyStages = 4;

/// Codes of weights and their scales. Also announces the bytes of all copies of a stage.
template <int kTokens>
__device__ __forceinline__ void produce_w4ax_weights(const W4axArguments& args,
                                                     const TileBlock& block) {
  const TileArguments& tile = args.tile;
  ptx::PipelineState stage = {0, 1};  // every stage is empty at first
  int num_early = kW4axEarlyStages + 1;
  TileSegment segment = block.first(tile);
  while (segment.num_chunks > 0) {
    const int panel = segment.tile / tile.token_tiles;
    const int64_t chunk = int64_t{panel} * tile.schedule.num_chunks + segment.begin;
    const uint8_t* codes = args.codes + chunk * kW4axChunkBytes;
    const int64_t scales_pitch = int64_t{args.num_panels} * kTileOutputs;
    const float* scales = args.w_scales + segment.begin * scales_pitch + panel * kTileOutputs;
    for (int i = 0; i < segment.num_chunks; ++i) {
      const uint32_t full = block.ring.full(tile, stage.index);
      const uint32_t to = block.ring.stage(tile, stage.index);
      ptx::mbarrier_wait_parity(block.ring.empty(tile, stage.index), stage.parity);
      // Weights are constant; but many stages of them would stand in the way of the first inputs.
      if (num_early > 0 && --num_early == 0) ptx::griddepcontrol_wait();
      ptx::mbarrier_arrive_expect_tx(full, w4ax_copied_bytes(kTokens));
      ptx::cp_async_bulk(to + w4ax_codes_offset(kTokens), codes, kW4axChunkBytes, full);
      ptx::cp_async_bulk(to + w4ax_scales_offset(kTokens), scales, kW4axScaleBytes, full);
      codes += kW4axChunkBytes;
      scales += scales_pitch;
      stage.advance(tile.num_stages);
    }
    segment = block.next(tile, segment);
  }
  // Not earlier: blocks of the next kernel would take SMs from this one's copies.
  ptx::griddepcontrol_launch_dependents();
}

/// The tile's tokens and their scales.
template <int kTokens>
__device__ __forceinline__ void produce_w4ax_tokens(const CUtensorMap& x_map,
                                                    const W4axArguments& args,
                                                    const TileBlock& block) {
  const TileArguments& tile = args.tile;
  ptx::griddepcontrol_wait();
  ptx::PipelineState stage = {0, 1};
  TileSegment segment = block.first(tile);
  while (segment.num_chunks > 0) {
    const int token = segment.tile % tile.token_tiles * kTokens;
    const float* scales = args.x_scales + segment.begin * args.x_scales_pitch + token;
    for (int i = 0; i < segment.num_chunks; ++i) {
      const uint32_t full = block.ring.full(tile, stage.index);
      const uint32_t to = block.ring.stage(tile, stage.index);
      const int column = (segment.begin + i) * kW4axInputs;
      ptx::mbarrier_wait_parity(block.ring.empty(tile, stage.index), stage.parity);
      ptx::cp_async_bulk_tensor_2d(to, &x_map, column, token, full);
      ptx::cp_async_bulk(to + w4ax_scales_offset(kTokens) + kW4axScaleBytes, scales, kTokens * 4,
                         full);
      scales += args.x_scales_pitch;
      stage.advance(tile.num_stages);
    }
    segment = block.next(tile, segment);
  }
}

}  // namespace halley::cuda
