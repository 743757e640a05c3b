// The two warps that fill the ring of the grouped GEMM by wgmma.
#pragma once

#include <cstdint>

#include "halley/cuda/grouped_gemm/grouped_tables.cuh"
#include "halley/cuda/grouped_gemm/grouped_tiles.h"
#include "halley/cuda/grouped_gemm/wgmma_grouped_arguments.h"
#include "halley/cuda/mixed_gemm/mixed_ring.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"

namespace halley::cuda {

/// The tiles of a CTA, in turn; all warps walk them alike.
struct WgmmaTiles {
  GroupedGrid grid;
  SlotTables tables;

  __device__ __forceinline__ int count() const {
    return tables.row_tile_begin[grid.num_experts] * grid.output_tiles;
  }
  /// Its first_output counts rows of weights: twice the outputs of a gated GEMM.
  __device__ __forceinline__ GroupedTile at(int index) const {
    return find_tile(grid, tables.expert_begin, tables.row_tile_begin, index);
  }
};

/// A copy of one lane: from where, and to where in a stage.
struct PackedCopy {
  const uint8_t* from = nullptr;
  int to = 0, num_bytes = 0;
};

/// Lane `lane` copies of each packed tile of K the values of a sub-tile, or its parameters of one
/// group.
template <GroupedKind kKind>
__device__ __forceinline__ PackedCopy packed_copy(const WgmmaGroupedArguments& args,
                                                  const GroupedTile& tile, int lane) {
  constexpr MixedKind kMixed = ring_kind(kKind);
  constexpr int kCodeBytes = 4 * row_code_bytes(kMixed), kGroupBytes = group_bytes(kMixed) / 2;
  const bool is_code = lane < kNumSubTiles;
  const int num_groups = kGroupBytes == 0 ? 0 : args.num_groups;
  if (lane >= kNumSubTiles * (1 + num_groups)) return {};
  const int group = is_code ? 0 : (lane - kNumSubTiles) / kNumSubTiles;
  const int sub = lane % kNumSubTiles;  // of the stage: warpgroup 2, then its two
  const bool is_gated = args.epilogue == GroupedEpilogue::kGated;
  const int output_tile = tile.first_output / kWgmmaTileRows;
  const int half = is_gated ? sub % 2 : 0;
  // A last tile may be behind the weight: its outputs are unused.
  const int wanted = is_gated ? half * args.second_half_tile + output_tile * 2 + sub / 2
                              : output_tile * kNumSubTiles + sub;
  const int from_sub = min(wanted, args.num_sub_tiles - 1);
  const auto* data =
      reinterpret_cast<const uint8_t*>(args.weights[(is_gated ? 2 : 1) * tile.expert + half].data);
  data += int64_t{from_sub / 2} * args.num_stages_of_k * args.ring.chunk_bytes;
  const auto place = [&](int at) {
    return is_code ? at * kCodeBytes
                   : chunk_code_bytes(kMixed) + group * 2 * kGroupBytes + at * kGroupBytes;
  };
  return {data + place(from_sub % 2), sub / 2 * args.ring.chunk_bytes + place(sub % 2),
          is_code ? kCodeBytes : kGroupBytes};
}

/// One warp: weights of all tiles. Also announces the bytes of both copies.
template <GroupedKind kKind>
__device__ __forceinline__ void copy_wgmma_weights(const WgmmaGroupedArguments& args,
                                                   const MixedRing& ring, const WgmmaTiles& tiles) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const MixedShared& shared = args.ring.shared;
  ptx::PipelineState stage = {0, 1};  // every stage is empty at first
  const int num_tiles = tiles.count();
  for (int i = static_cast<int>(blockIdx.x); i < num_tiles; i += static_cast<int>(gridDim.x)) {
    const GroupedTile tile = tiles.at(i);
    PackedCopy copy;
    const CUtensorMap* map = nullptr;
    int first_row = 0;
    if constexpr (is_rows(kKind)) {
      const bool is_gated = args.epilogue == GroupedEpilogue::kGated;
      const int sub = lane % kNumSubTiles;
      map = args.maps + (is_gated ? 2 * tile.expert + sub % 2 : tile.expert);
      first_row = is_gated ? tile.first_output / 2 + sub / 2 * kSubTileRows
                           : tile.first_output + sub * kSubTileRows;
      ptx::fence_proxy_tensormap_acquire(map);
    } else {
      copy = packed_copy<kKind>(args, tile, lane);
    }
    for (int k = 0; k < args.num_stages_of_k; ++k) {
      const uint32_t full = ring.full(args.ring, stage.index);
      const uint32_t to = ring.w_stage(args.ring, stage.index);
      ptx::mbarrier_wait_parity(ring.empty(args.ring, stage.index), stage.parity);
      if (lane == 0) {
        ptx::mbarrier_arrive_expect_tx(full, shared.x_stage_bytes + shared.w_stage_bytes);
      }
      __syncwarp();
      if constexpr (is_rows(kKind)) {
        if (lane < kNumSubTiles) {
          constexpr int kInputs = kStageRowBytes / row_value_bytes(kKind);
          ptx::cp_async_bulk_tensor_2d(
              to + static_cast<uint32_t>(lane * kSubTileRows * kStageRowBytes), map, k * kInputs,
              first_row, full);
        }
      } else {
        if (copy.num_bytes > 0) {
          ptx::cp_async_bulk(to + static_cast<uint32_t>(copy.to), copy.from, copy.num_bytes, full);
        }
        copy.from += args.ring.chunk_bytes;
      }
      stage.advance(args.ring.num_stages);
    }
  }
}

/// One thread: tokens as boxes of 128 bytes each.
template <GroupedKind kKind, int kTokens>
__device__ __forceinline__ void copy_wgmma_tokens(const CUtensorMap& x_map,
                                                  const WgmmaGroupedArguments& args,
                                                  const MixedRing& ring, const WgmmaTiles& tiles) {
  ptx::PipelineState stage = {0, 1};
  const int num_tiles = tiles.count();
  for (int i = static_cast<int>(blockIdx.x); i < num_tiles; i += static_cast<int>(gridDim.x)) {
    const int row = args.has_one_row ? 0 : tiles.at(i).first_slot;
    for (int k = 0; k < args.num_stages_of_k; ++k) {
      const uint32_t full = ring.full(args.ring, stage.index);
      const uint32_t to = ring.x_stage(args.ring, stage.index);
      ptx::mbarrier_wait_parity(ring.empty(args.ring, stage.index), stage.parity);
      if constexpr (is_rows(kKind)) {
        constexpr int kInputs = kStageRowBytes / row_value_bytes(kKind);
        ptx::cp_async_bulk_tensor_2d(to, &x_map, k * kInputs, row, full);
      } else {
        ptx::cp_async_bulk_tensor_2d(to, &x_map, k * kChunkInputs, row, full);
        if constexpr (!has_scales(kKind)) {
          ptx::cp_async_bulk_tensor_2d(to + kTokens * kStageRowBytes, &x_map,
                                       k * kChunkInputs + kChunkInputs / 2, row, full);
        }
      }
      stage.advance(args.ring.num_stages);
    }
  }
}

}  // namespace halley::cuda
