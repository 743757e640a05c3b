// For tests: plans of one tile with a given schedule, which the choice might not take.
#pragma once

#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/runtime/cuda_device.h"

namespace halley::cuda {

/// A plan of this tile in which `num_blocks` CTAs share all tiles, at most as many as there are
/// chunks: in equal parts of a tile where the number is a multiple of the tiles, else as one row.
TilePlan plan_shared_tile(const TileFamily& family, const ProductShape& shape,
                          const CudaDeviceInfo& device, int tile_index, int num_blocks);

/// A plan of this tile, whose inputs `split` CTAs of a cluster share.
TilePlan plan_split_tile(const TileFamily& family, const ProductShape& shape,
                         const CudaDeviceInfo& device, int tile_index, int split);

}  // namespace halley::cuda
