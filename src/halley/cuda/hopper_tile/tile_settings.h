// A tile plan as settings of a table of measured plans (cuda/tuning).
#pragma once

#include <optional>

#include "halley/cuda/hopper_tile/tile_plan.h"
#include "halley/cuda/tuning/tuning_table.h"

namespace halley::cuda {

TunedGemm tuned_gemm_of(const TileFamily& family, const ProductShape& shape);

/// "tokens" of the tile, "ctas_per_sm", "shared_rounds", "parts", "split" (TileDeal).
PlanSettings settings_of(const TilePlan& plan);

/// The plan that has exactly these settings. None: no such tile is compiled, or the shape cannot be
/// dealt so.
std::optional<TilePlan> tile_plan_of(const TileFamily& family, const ProductShape& shape,
                                     const CudaDeviceInfo& device, const PlanSettings& settings);

}  // namespace halley::cuda
