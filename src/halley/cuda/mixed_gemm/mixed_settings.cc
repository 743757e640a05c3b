#include "halley/cuda/mixed_gemm/mixed_settings.h"

namespace halley::cuda {

TunedGemm tuned_gemm_of(const MixedShape& shape) {
  return {
      .kernel = name_of(shape.kind), .N = shape.N, .K = shape.K, .group_size = shape.group_size};
}

std::optional<MixedShape> mixed_shape_of(const TunedGemm& gemm, int64_t M) {
  if (gemm.group_size != 32 && gemm.group_size != 64 && gemm.group_size != kChunkInputs) return {};
  for (const MixedKind kind : kMixedKinds) {
    if (gemm.kernel != name_of(kind)) continue;
    return MixedShape{
        .kind = kind, .M = M, .N = gemm.N, .K = gemm.K, .group_size = gemm.group_size};
  }
  return {};
}

PlanSettings settings_of(const MixedPlan& plan) {
  if (plan.is_narrow) return {{"is_small_m", 1}};
  const MixedTile& tile = kMixedTiles[static_cast<size_t>(plan.tiling.tile_index)];
  PlanSettings settings = {{"tokens", tile.tokens},
                           {"outputs", tile.outputs},
                           {"cluster_size", plan.tiling.num_ranks},
                           {"ctas_per_sm", plan.tiling.blocks_per_multiprocessor}};
  if (plan.tiling.shares_last_tiles) settings["is_stream_k"] = 1;
  return settings;
}

std::optional<MixedPlan> mixed_plan_of(const MixedShape& shape, const MixedDevice& device,
                                       const PlanSettings& settings) {
  if (settings == PlanSettings{{"is_small_m", 1}}) {
    if (!can_be_narrow(shape)) return {};
    return narrow_mixed_plan(shape, device);
  }
  const auto number = [&](const char* name, int otherwise) {
    return static_cast<int>(setting_of(settings, name, otherwise));
  };
  MixedTiling tiling = {.num_ranks = number("cluster_size", 0),
                        .blocks_per_multiprocessor = number("ctas_per_sm", 0),
                        .shares_last_tiles = number("is_stream_k", 0) == 1};
  if (tiling.num_ranks < 1 || tiling.num_ranks > kRanksMax) return {};
  if (tiling.blocks_per_multiprocessor < 1 || tiling.blocks_per_multiprocessor > 2) return {};
  for (size_t i = 0; i < kMixedTiles.size(); ++i) {
    const MixedTile& tile = kMixedTiles[i];
    if (tile.tokens != number("tokens", 0) || tile.outputs != number("outputs", 0)) continue;
    tiling.tile_index = static_cast<int>(i);
    if (!can_tile(shape, device, tiling)) return {};
    MixedPlan plan = tiled_mixed_plan(shape, device, tiling);
    if (settings_of(plan) == settings) return plan;
  }
  return {};
}

}  // namespace halley::cuda
