// Tiles of the Hopper products and what a block keeps in shared memory. Pure functions of the host
// and the device.
#pragma once

#include <array>
#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_layout.h"

namespace halley::cuda {

/// What a block computes at a time: `outputs` features (the rows of the tensor cores' tile: weights
/// are operand A) of `tokens` rows of Y. Two warpgroups have half of the outputs each.
struct MixedTile {
  int tokens = 0;   // 16, 32, 48, 64 or 128
  int outputs = 0;  // 128 or 256; of 32 and 48 tokens 128
};

/// All; has_tile() has which are compiled of a kind.
inline constexpr std::array<MixedTile, 8> kMixedTiles = {{
    {16, 128},
    {16, 256},
    {64, 128},
    {64, 256},
    {128, 128},
    {128, 256},
    {32, 128},
    {48, 128},
}};

inline constexpr int kConsumerThreads = 256;
inline constexpr int kStagesMax = 16;
/// Blocks of a cluster, at most: what every device of compute capability 9.0 has.
inline constexpr int kRanksMax = 8;
/// Slots of sums that givers leave, at most: each has a counter.
inline constexpr int kSlotsMax = 1024;
/// The swizzle of activations repeats every 1024 bytes.
inline constexpr int kStageAlignment = 1024;

/// Tiles whose sums leave room for two blocks on an SM.
constexpr bool is_small(const MixedTile& tile) { return tile.tokens * tile.outputs <= 64 * 128; }
/// Whether it is compiled. Of 8 bits not the largest, whose ring would have two stages, nor those
/// of 32 and 48 tokens.
constexpr bool has_tile(MixedKind kind, const MixedTile& tile) {
  return !is_u8(kind) ||
         (tile.tokens * tile.outputs < 128 * 256 && (tile.tokens == 16 || tile.tokens >= 64));
}
/// Two warps copy; with large tiles they are a whole warpgroup, for its registers.
constexpr int num_threads(const MixedTile& tile) {
  return kConsumerThreads + (is_small(tile) ? 64 : 128);
}

/// Sums of a tile in vectors of four a thread: of eight tokens and 64 outputs of each warpgroup.
constexpr int num_vectors(const MixedTile& tile) {
  return tile.tokens * tile.outputs / (4 * kConsumerThreads);
}
inline constexpr int kVectorBytes = 16 * kConsumerThreads;
/// What the blocks of a cluster finish is dealt in vectors, and with few tokens in those of one
/// warpgroup.
constexpr bool has_few_tokens(const MixedTile& tile) { return tile.tokens <= 16; }
constexpr int num_units(const MixedTile& tile) {
  return num_vectors(tile) * (has_few_tokens(tile) ? 2 : 1);
}
constexpr int unit_bytes(const MixedTile& tile) {
  return kVectorBytes * num_vectors(tile) / num_units(tile);
}
/// The same, rounded to 16 bits, of one warpgroup: rows of 128 bytes.
inline constexpr int kStagedVectorBytes = 1024;

/// Offsets in bytes from the first multiple of kStageAlignment on.
struct MixedShared {
  int x_stage_bytes = 0;  // 128 inputs of all tokens, in blocks of 128-byte rows
  int w_stage_bytes = 0;
  int staging = 0;  // [warpgroup 2][vector that the block writes]; activations begin at 0
  int staged_vectors = 0;
  int part_bytes = 0;     // of what another block sends
  int weights = 0;        // of stage 0
  int received = 0;       // [block of the cluster][unit that this block writes][thread]
  int token_scales = 0;   // of s8: [warpgroup 2][token][scale, sum of codes]
  int output_scales = 0;  // [warpgroup 2][scale, offset, bias][output]
  int barriers = 0;       // full ones, then empty ones, then two of the cluster
  int num_bytes = 0;      // alignment of the start included
};

constexpr MixedShared mixed_shared(MixedKind kind, const MixedTile& tile, int chunk_bytes,
                                   int num_stages, int num_ranks) {
  MixedShared shared;
  shared.x_stage_bytes = tile.tokens * kChunkInputs * (is_s8(kind) ? 1 : 2);
  shared.w_stage_bytes = tile.outputs / kChunkOutputs * chunk_bytes;
  shared.staging = num_stages * shared.x_stage_bytes;
  shared.staged_vectors = (num_vectors(tile) + num_ranks - 1) / num_ranks;
  shared.weights = shared.staging + 2 * shared.staged_vectors * kStagedVectorBytes;
  shared.received = shared.weights + num_stages * shared.w_stage_bytes;
  const int num_parts = num_ranks > 1 ? num_ranks : 0;
  shared.part_bytes = (num_units(tile) + num_ranks - 1) / num_ranks * unit_bytes(tile);
  shared.token_scales = shared.received + num_parts * shared.part_bytes;
  shared.output_scales = shared.token_scales + (is_s8(kind) ? 2 * tile.tokens * 8 : 0);
  shared.barriers = shared.output_scales + 3 * tile.outputs * 4;
  shared.num_bytes = kStageAlignment + shared.barriers + (2 * num_stages + 2) * 8;
  return shared;
}

/// Whether that is compiled for givers: not with few tokens, where clusters are as fast, nor for
/// codes of 8 bits.
constexpr bool can_have_givers(MixedKind kind, const MixedTile& tile) {
  return tile.tokens >= 64 && !is_u8(kind);
}
/// Vectors of a stage that brings sums which givers have left: they pass the ring too, in the place
/// of activations.
constexpr int stage_vectors(MixedKind kind, const MixedTile& tile) {
  return tile.tokens * kChunkInputs * (is_s8(kind) ? 1 : 2) / kVectorBytes;
}

/// As many stages as `shared_bytes_max` allows, at most kStagesMax.
constexpr int num_stages_of(MixedKind kind, const MixedTile& tile, int chunk_bytes, int num_ranks,
                            int shared_bytes_max) {
  // Every stage takes as much.
  const int none = mixed_shared(kind, tile, chunk_bytes, 0, num_ranks).num_bytes;
  const int one = mixed_shared(kind, tile, chunk_bytes, 1, num_ranks).num_bytes;
  if (one > shared_bytes_max) return 0;
  const int stages = (shared_bytes_max - none) / (one - none);
  return stages < kStagesMax ? stages : kStagesMax;
}

}  // namespace halley::cuda
