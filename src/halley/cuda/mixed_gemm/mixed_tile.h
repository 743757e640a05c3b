// Tiles of the Hopper products and what a block keeps in shared memory. Pure functions of the host
// and the device.
#pragma once

#include <array>
#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_layout.h"

namespace halley::cuda {

/// What a block computes at a time: `outputs` features (the rows of the tensor cores' tile: weights
/// are operand A) of `tokens` rows of Y. Its warpgroups have equal parts of the outputs; where there
/// are splits, as many warpgroups have the same part, and take turns along K.
struct MixedTile {
  int tokens = 0;   // 16, 64 or 128
  int outputs = 0;  // 128 or 256
  int warpgroups = 2;
  int splits = 1;
};

/// All that are compiled. Products of a warpgroup follow one another with a latency that, with
/// up to 64 tokens, is much longer than they take: four warpgroups hide it.
inline constexpr std::array<MixedTile, 6> kMixedTiles = {{
    {16, 128, 4, 2},
    {16, 256, 4, 1},
    {64, 128, 4, 2},
    {64, 256, 4, 1},
    {128, 128, 2, 1},
    {128, 256, 2, 1},
}};

constexpr MixedTile tile_of(int tokens, int outputs) {
  for (const MixedTile& tile : kMixedTiles) {
    if (tile.tokens == tokens && tile.outputs == outputs) return tile;
  }
  return {};
}

/// The swizzle of activations repeats every 1024 bytes.
inline constexpr int kStageAlignment = 1024;
inline constexpr int kStagesMax = 16;
/// Blocks of a cluster, at most: what every device of compute capability 9.0 has.
inline constexpr int kRanksMax = 8;

/// Threads that multiply.
constexpr int num_consumers(const MixedTile& tile) { return 128 * tile.warpgroups; }
/// Of 64 outputs, of a warpgroup.
constexpr int num_strips(const MixedTile& tile) {
  return tile.outputs / 64 * tile.splits / tile.warpgroups;
}

/// Tiles with so many sums that warps which copy give registers to those that multiply.
constexpr bool is_large(const MixedTile& tile) { return tile.warpgroups == 2; }
/// Two warps copy; with large tiles they are a whole warpgroup, for its registers.
constexpr int num_threads(const MixedTile& tile) {
  return num_consumers(tile) + (is_large(tile) ? 128 : 64);
}

/// Sums of a warpgroup in vectors of four a thread: of eight tokens and 64 outputs.
constexpr int num_vectors(const MixedTile& tile) { return tile.tokens / 8 * num_strips(tile); }
/// Warpgroups that share sums, of a cluster of `num_ranks` blocks: each finishes a part of them.
constexpr int num_sharers(const MixedTile& tile, int num_ranks) { return num_ranks * tile.splits; }
/// Of one warpgroup.
inline constexpr int kVectorBytes = 16 * 128;
/// The same, rounded to 16 bits: rows of 128 bytes.
inline constexpr int kStagedVectorBytes = 1024;

/// Offsets in bytes from the first multiple of kStageAlignment on.
struct MixedShared {
  int x_stage_bytes = 0;  // 128 inputs of all tokens, in blocks of 128-byte rows
  int w_stage_bytes = 0;
  int staging = 0;  // [warpgroup][vector that it writes]; activations begin at 0
  int staged_vectors = 0;
  int weights = 0;        // of stage 0
  int received = 0;       // [warpgroup][sharer][vector that the warpgroup writes][thread]
  int token_scales = 0;   // [warpgroup][token][scale, sum of codes]
  int output_scales = 0;  // [warpgroup][scale, offset, bias][output]
  int barriers = 0;       // full ones, then empty ones, then two of the cluster
  int num_bytes = 0;      // alignment of the start included
};

constexpr MixedShared mixed_shared(MixedKind kind, const MixedTile& tile, int chunk_bytes,
                                   int num_stages, int num_ranks) {
  MixedShared shared;
  const int warpgroups = tile.warpgroups, sharers = num_sharers(tile, num_ranks);
  shared.x_stage_bytes = tile.tokens * kChunkInputs * (is_s8(kind) ? 1 : 2);
  shared.w_stage_bytes = tile.outputs / kChunkOutputs * chunk_bytes;
  shared.staging = num_stages * shared.x_stage_bytes;
  shared.staged_vectors = (num_vectors(tile) + sharers - 1) / sharers;
  shared.weights = shared.staging + warpgroups * shared.staged_vectors * kStagedVectorBytes;
  shared.received = shared.weights + num_stages * shared.w_stage_bytes;
  const int num_parts = sharers > 1 ? warpgroups * sharers : 0;
  shared.token_scales = shared.received + num_parts * shared.staged_vectors * kVectorBytes;
  shared.output_scales = shared.token_scales + warpgroups * tile.tokens * 8;
  shared.barriers = shared.output_scales + warpgroups * num_strips(tile) * 64 * 12;
  shared.num_bytes = kStageAlignment + shared.barriers + (2 * num_stages + 2) * 8;
  return shared;
}

/// As many stages as `shared_bytes_max` allows, at most kStagesMax.
constexpr int num_stages_of(MixedKind kind, const MixedTile& tile, int chunk_bytes, int num_ranks,
                            int shared_bytes_max) {
  int stages = 0;
  while (stages < kStagesMax &&
         mixed_shared(kind, tile, chunk_bytes, stages + 1, num_ranks).num_bytes <=
             shared_bytes_max) {
    ++stages;
  }
  return stages;
}

}  // namespace halley::cuda
