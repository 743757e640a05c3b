// The choice of a tile and a schedule for a product of a packed weight. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <vector>

#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/mixed_narrow.h"
#include "halley/cuda/mixed_gemm/mixed_schedule.h"
#include "halley/cuda/mixed_gemm/mixed_tile.h"

namespace halley::cuda {

struct MixedShape {
  MixedKind kind = MixedKind::kU4S8;
  int64_t M = 0, N = 0, K = 0;
  int group_size = 128;  // as stored: 32, 64 or 128
};

struct MixedDevice {
  int num_sms = 132;
  int shared_bytes_max = 232448;  // of a block
};

/// How tiles are dealt out: what is tuned for a shape.
struct MixedTiling {
  int tile_index = 0;  // in kMixedTiles
  int num_ranks = 1;   // blocks of a cluster, which share each tile
  /// Two for small tiles, with half of the shared memory each.
  int blocks_per_multiprocessor = 1;
  /// Without clusters: blocks that would have a tile less help with those that are left.
  bool shares_last_tiles = false;
};

struct MixedPlan {
  /// The kernel for at most eight tokens: its tiles are rows of 16 outputs, of which blocks have
  /// consecutive ones.
  bool is_narrow = false;
  MixedNarrow narrow;
  MixedTile tile;
  MixedTiling tiling;
  int token_tiles = 0;
  int output_tiles = 0;
  int num_stages = 0;
  MixedSchedule schedule;
  /// The estimate that won, without what all plans have in common.
  double microseconds = 0;

  /// What a launch takes from the workspace: sums that givers leave.
  size_t workspace_bytes() const;
};

std::ostream& operator<<(std::ostream& out, const MixedPlan& plan);

/// The most that any plan takes from the workspace.
size_t mixed_workspace_bytes_max(const MixedDevice& device);

/// The measured plan of find_tuned_plan() where there is one, else the one with the lowest
/// estimate. M, N and K at least 1. The estimates are fitted to times of an H200.
MixedPlan plan_mixed_gemm(const MixedShape& shape, const MixedDevice& device);

/// A plan whose tile and clusters are the same for every M: sums of 16-bit kinds are then added in
/// the same order in every batch. (Those of s8 are exact in any.)
MixedPlan invariant_mixed_plan(const MixedShape& shape, const MixedDevice& device);

/// Whether the kernel for few tokens takes the shape: M at most 8.
bool can_be_narrow(const MixedShape& shape);
MixedPlan narrow_mixed_plan(const MixedShape& shape, const MixedDevice& device);
/// With as many rows of 16 outputs at a time, at most kNarrowRows, and as many stages as fit in
/// `shared_bytes`, one at least: for tests and tuning.
MixedPlan narrow_mixed_plan(const MixedShape& shape, const MixedDevice& device, int rows,
                            int shared_bytes);

/// Whether it can be: the tile is compiled for the kind, no more blocks of a cluster than chunks
/// and than parts of a tile's sums, two blocks on an SM only of small tiles, two stages,
/// of 8 bits three; givers only where tiles leave blocks without work, and some for each of them.
bool can_tile(const MixedShape& shape, const MixedDevice& device, const MixedTiling& tiling);
/// The plan with this tiling, which can be: for tests and tuning.
MixedPlan tiled_mixed_plan(const MixedShape& shape, const MixedDevice& device,
                           const MixedTiling& tiling);
/// All that can be.
std::vector<MixedTiling> mixed_tilings(const MixedShape& shape, const MixedDevice& device);

}  // namespace halley::cuda
