// The choice of a tile and a schedule for a product. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string_view>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/hopper_tile/tile_arguments.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct ProductShape {
  int64_t M = 0, N = 0, K = 0;
};

/// A compiled tile, and its times in microseconds on an H200.
struct TimedTile {
  HopperTile tile;
  double stage = 0;  // of a block alone on its SM
  double end = 0;    // of a tile
  double part = 0;   // a block's part of a shared tile, beside its stages
  double split = 0;  // for each block of a cluster that shares a tile's inputs
};

/// All tiles of a kernel.
struct TileFamily {
  std::string_view name = {};  // of its measured plans (cuda/tuning)
  std::span<const TimedTile> tiles;
  int stage_inputs = 0;
  double weight_bits = 0;  // in memory, of one number
  StageNeeds (*stage)(const HopperTile& tile) = nullptr;
};

/// How any number of tiles is dealt to blocks.
struct TileDeal {
  int tile_index = 0;     // in the family
  int blocks = 1;         // on an SM
  int shared_rounds = 0;  // 0: no tile is shared. 1: those of the last round, which is not full
  int parts = 0;          // of a shared tile; 0: one row (TileSchedule)
  int split = 1;          // TileArguments
};

struct TilePlan {
  HopperTile tile;
  int tile_index = 0;  // in the family
  TileDeal deal = {};  // that it was made by
  int token_tiles = 0;
  int num_stages = 0;
  StageNeeds stage;
  /// Chunks are the inputs of a stage.
  TileSchedule schedule;
  int split = 1;  // TileArguments
  /// The estimate that won.
  double microseconds = 0;

  size_t workspace_bytes() const;
};

std::ostream& operator<<(std::ostream& out, const TilePlan& plan);

/// Tiles that have several blocks, at most; and the counters of a weight for them.
inline constexpr int kSharedTileTilesMax = 1024;
inline constexpr int kTileCounters = kSharedTileTilesMax * 2;

/// The plan of a deal, if there is one for this shape.
std::optional<TilePlan> plan_dealt(const TileFamily& family, const ProductShape& shape,
                                   const CudaDeviceInfo& device, const TileDeal& deal);

/// The measured plan where there is one for this shape, else that with the lowest estimate. M, N
/// and K at least 1.
TilePlan plan_tiles(const TileFamily& family, const ProductShape& shape,
                    const CudaDeviceInfo& device);

/// A plan of the same tile for every M, whose tiles have a block each: sums are then added in the
/// same order in every batch.
TilePlan plan_invariant_tiles(const TileFamily& family, const ProductShape& shape,
                              const CudaDeviceInfo& device);

/// All plans of one tile that can be, at least one: for tuning.
std::vector<TilePlan> plans_of_tile(const TileFamily& family, const ProductShape& shape,
                                    const CudaDeviceInfo& device, int tile_index);

/// That of them with the lowest estimate.
TilePlan plan_one_tile(const TileFamily& family, const ProductShape& shape,
                       const CudaDeviceInfo& device, int tile_index);

/// What is timed: the plan that GEMMs run with, or all among which the fastest is (of tiles whose
/// tokens are not far from M, those whose estimates are not far from the least).
std::vector<TilePlan> timed_plans(const TileFamily& family, const ProductShape& shape,
                                  const CudaDeviceInfo& device, bool has_all_tiles);

/// The most that any plan of the family takes from the workspace of such a GPU.
size_t tile_workspace_bytes_max(const TileFamily& family, int num_sms);

/// What all products pass to the GPU. `partials`: plan.workspace_bytes(), `counters`:
/// kTileCounters.
struct TileProduct {
  Matrix y;
  const float* bias = nullptr;
  bool starts_early = false;
  void* partials = nullptr;
  void* counters = nullptr;
};
TileArguments tile_arguments(const TilePlan& plan, const TileProduct& product);

/// Whether all rows begin at multiples of 16 bytes.
bool has_wide_rows(const ConstMatrix& matrix);

}  // namespace halley::cuda
