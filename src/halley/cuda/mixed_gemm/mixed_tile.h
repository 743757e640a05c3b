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
  int tokens = 0;   // 16, 64 or 128
  int outputs = 0;  // 128 or 256
};

/// All that are compiled.
inline constexpr std::array<MixedTile, 5> kMixedTiles = {{
    {16, 128},
    {16, 256},
    {64, 128},
    {64, 256},
    {128, 256},
}};

inline constexpr int kConsumerThreads = 256;
/// A third warpgroup copies; it exists for its registers, two of its warps work.
inline constexpr int kMixedThreads = 384;
inline constexpr int kStagesMax = 16;
/// The swizzle of activations repeats every 1024 bytes.
inline constexpr int kStageAlignment = 1024;
/// Tokens of a tile's outputs that are turned to rows at a time.
constexpr int staged_tokens(const MixedTile& tile) { return tile.tokens < 64 ? tile.tokens : 64; }

/// 32-bit sums that a thread holds.
constexpr int num_sums(const MixedTile& tile) {
  return tile.tokens * tile.outputs / kConsumerThreads;
}
/// Bytes of the sums of a tile: of one slot of the workspace.
constexpr int64_t partial_bytes(const MixedTile& tile) {
  return int64_t{4} * tile.tokens * tile.outputs;
}

/// Offsets in bytes from the first multiple of kStageAlignment on.
struct MixedShared {
  int x_stage_bytes = 0;  // 128 inputs of all tokens, in blocks of 128-byte rows
  int w_stage_bytes = 0;
  int weights = 0;  // of stage 0; activations begin at 0
  int staging = 0;
  int staging_pitch = 0;  // bytes from a token to the next
  int token_scales = 0;   // [warpgroup 2][token][scale, sum of codes]
  int barriers = 0;       // full ones, then empty ones
  int flags = 0;          // one for each warpgroup
  int num_bytes = 0;      // alignment of the start included
};

constexpr MixedShared mixed_shared(MixedKind kind, const MixedTile& tile, int chunk_bytes,
                                   int num_stages) {
  MixedShared shared;
  shared.x_stage_bytes = tile.tokens * kChunkInputs * (is_s8(kind) ? 1 : 2);
  shared.w_stage_bytes = tile.outputs / kChunkOutputs * chunk_bytes;
  shared.weights = num_stages * shared.x_stage_bytes;
  shared.staging = shared.weights + num_stages * shared.w_stage_bytes;
  // 16 bytes more than the row: eight rows then lie in different banks.
  shared.staging_pitch = tile.outputs / 2 * 2 + 16;
  shared.token_scales = shared.staging + 2 * staged_tokens(tile) * shared.staging_pitch;
  shared.barriers = shared.token_scales + 2 * tile.tokens * 8;
  shared.flags = shared.barriers + 2 * num_stages * 8;
  shared.num_bytes = kStageAlignment + shared.flags + 8;
  return shared;
}

/// As many stages as `shared_bytes_max` allows, at most kStagesMax.
constexpr int num_stages_of(MixedKind kind, const MixedTile& tile, int chunk_bytes,
                            int shared_bytes_max) {
  int stages = 0;
  while (stages < kStagesMax &&
         mixed_shared(kind, tile, chunk_bytes, stages + 1).num_bytes <= shared_bytes_max) {
    ++stages;
  }
  return stages;
}

}  // namespace halley::cuda
