// The choice of a tile and a schedule for a product of a 4-bit weight. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>

#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/mixed_schedule.h"
#include "halley/cuda/mixed_gemm/mixed_tile.h"

namespace halley::cuda {

struct MixedShape {
  MixedKind kind = MixedKind::kU4S8;
  int64_t M = 0, N = 0, K = 0;
  int group_size = 128;  // as stored: 32, 64 or 128
};

struct MixedDevice {
  int num_multiprocessors = 132;
  int shared_bytes_max = 232448;  // of a block
};

struct MixedPlan {
  /// The kernel for at most eight tokens, which has no tiles: all that follows is of no meaning.
  bool is_narrow = false;
  MixedTile tile;
  int tile_index = 0;  // in kMixedTiles
  int token_tiles = 0;
  int output_tiles = 0;
  int num_stages = 0;
  MixedSchedule schedule;
  /// The estimate that won, without what all plans have in common.
  double microseconds = 0;

  size_t workspace_bytes() const;
};

std::ostream& operator<<(std::ostream& out, const MixedPlan& plan);

/// Tiles that have blocks of several, at most: the counters of a weight.
inline constexpr int kSharedTilesMax = 1024;

/// The plan with the lowest estimate. M, N and K at least 1. The estimates are
/// fitted to times of an H200; a plan depends on M by the tile's tokens and by how
/// tiles are shared.
MixedPlan plan_mixed_gemm(const MixedShape& shape, const MixedDevice& device);

/// The plan of one tile for every M, whose tiles have a block each: sums of 16-bit kinds are then
/// added in the same order in every batch. (Those of s8 are exact in any.)
MixedPlan invariant_mixed_plan(const MixedShape& shape, const MixedDevice& device);

/// The most that any plan of the device takes from the workspace.
size_t mixed_workspace_bytes_max(const MixedDevice& device);

/// Whether the kernel for few tokens takes the shape: M at most 8, K a multiple of 64.
bool can_be_narrow(const MixedShape& shape);
MixedPlan narrow_mixed_plan(const MixedShape& shape);

/// Plans of one tile and all its schedules that are considered, for tests and for tuning.
MixedPlan plan_mixed_tile(const MixedShape& shape, const MixedDevice& device, int tile_index);

/// A plan with this tile in which all tiles are shared by `num_blocks` blocks: for tests.
MixedPlan shared_mixed_plan(const MixedShape& shape, const MixedDevice& device, int tile_index,
                            int num_blocks);

}  // namespace halley::cuda
