// Tiles of products on Hopper whose weights are operand A from registers, and what they keep in
// shared memory beside their stages. Pure functions of the host and the device.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// What a block computes at a time: kTileOutputs features of `tokens` rows of Y.
struct HopperTile {
  int tokens = 0;  // a multiple of 16, at most 256; of 64 above that
  /// On an SM, at most: with two one works while the other waits.
  int blocks = 1;
};

/// Blocks of a cluster that split the inputs of one tile, at most.
inline constexpr int kTileSplitMax = 4;

/// Parts of a tile that blocks have without being a cluster, at most.
inline constexpr int kTilePartsMax = 8;
/// Rounds of tiles that are shared, at most.
inline constexpr int kTileSharedRoundsMax = 2;

/// A block's outputs: two warpgroups with 64 each.
inline constexpr int kTileOutputs = 128;
inline constexpr int kTileConsumers = 256;
/// A third warpgroup copies; it exists for its registers, two of its warps work.
inline constexpr int kTileThreads = 384;
inline constexpr int kTileStagesMax = 16;
/// The swizzle by 128 bytes repeats every 1024 bytes.
inline constexpr int kTileAlignment = 1024;
/// Bytes from a token of staged outputs to the next: 16 more than 64 outputs have, so that eight
/// rows lie in different banks.
inline constexpr int kTilePitch = kTileOutputs / 2 * 2 + 16;

/// Tokens of a tile's outputs that are turned to rows at a time.
constexpr int staged_tile_tokens(int tokens) { return tokens < 64 ? tokens : 64; }
/// Bytes of the sums of a block's tile.
constexpr int64_t tile_partial_bytes(int tokens) { return int64_t{4} * tokens * kTileOutputs; }

/// Offsets in bytes from the first multiple of kTileAlignment on; stages begin there.
struct TileShared {
  int staging = 0;
  int barriers = 0;      // full ones, then empty ones
  int num_barriers = 0;  // of each
  int num_bytes = 0;     // alignment of the start included
};

/// What a stage needs.
struct StageNeeds {
  int num_bytes = 0;  // a multiple of kTileAlignment
  /// Parts that are filled and emptied for themselves, each with a pair of barriers.
  int num_parts = 1;
};

constexpr TileShared tile_shared(const HopperTile& tile, int num_stages, const StageNeeds& stage) {
  TileShared shared;
  shared.num_barriers = num_stages * stage.num_parts;
  shared.staging = num_stages * stage.num_bytes;
  shared.barriers = shared.staging + 2 * staged_tile_tokens(tile.tokens) * kTilePitch;
  shared.num_bytes = kTileAlignment + shared.barriers + 2 * shared.num_barriers * 8;
  return shared;
}

/// What the system takes of an SM's shared memory for each block.
inline constexpr int kSystemSharedBytes = 1024;

/// As many stages as `shared_bytes_max` of a block allows where `blocks` of them are on a
/// SM, at most kTileStagesMax.
constexpr int num_tile_stages(const HopperTile& tile, const StageNeeds& stage, int shared_bytes_max,
                              int blocks) {
  const int each = (shared_bytes_max + kSystemSharedBytes) / blocks - kSystemSharedBytes;
  int stages = 0;
  while (stages < kTileStagesMax && tile_shared(tile, stages + 1, stage).num_bytes <= each) {
    ++stages;
  }
  return stages;
}

}  // namespace halley::cuda
