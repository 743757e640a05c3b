// What every launch of a product in tiles passes to the GPU.
#pragma once

#include <cstdint>

#include "halley/core/dtype.h"
#include "halley/cuda/hopper_tile/tile_schedule.h"
#include "halley/cuda/hopper_tile/tile_shape.h"

namespace halley::cuda {

struct TileArguments {
  int num_stages = 0;
  int stage_bytes = 0;  // a multiple of kTileAlignment
  int token_tiles = 0;
  TileShared shared;
  TileSchedule schedule;
  /// Above 1: so many blocks, of one cluster, share the inputs of one tile each; the schedule has
  /// clusters for blocks, and all tiles whole, one a cluster.
  int split = 1;
  int M = 0, N = 0;
  bool starts_early = false;
  const float* bias = nullptr;  // [N]
  void* y = nullptr;
  DType y_dtype = DType::kF16;
  int64_t y_stride = 0;        // elements
  bool has_wide_rows = false;  // rows of y begin at multiples of 16 bytes
  /// Of shared tiles: slots of sums, and for each tile and warpgroup the number of blocks that are
  /// done, zero between launches.
  void* partials = nullptr;
  uint32_t* counters = nullptr;
};

}  // namespace halley::cuda
