#include "halley/cuda/hopper_tile/tile_settings.h"

#include <string>

namespace halley::cuda {

TunedGemm tuned_gemm_of(const TileFamily& family, const ProductShape& shape) {
  return {.kernel = std::string(family.name), .N = shape.N, .K = shape.K};
}

PlanSettings settings_of(const TilePlan& plan) {
  return {{"tokens", plan.tile.tokens},
          {"ctas_per_sm", plan.deal.blocks},
          {"shared_rounds", plan.deal.shared_rounds},
          {"parts", plan.deal.parts},
          {"split", plan.deal.split}};
}

std::optional<TilePlan> tile_plan_of(const TileFamily& family, const ProductShape& shape,
                                     const CudaDeviceInfo& device, const PlanSettings& settings) {
  const auto number = [&](const char* name) {
    return static_cast<int>(setting_of(settings, name, -1));
  };
  TileDeal deal = {.blocks = number("ctas_per_sm"),
                   .shared_rounds = number("shared_rounds"),
                   .parts = number("parts"),
                   .split = number("split")};
  const bool is_in_range = deal.blocks >= 1 && deal.shared_rounds >= 0 &&
                           deal.shared_rounds <= kTileSharedRoundsMax && deal.parts >= 0 &&
                           deal.parts <= kTilePartsMax && deal.split >= 1 &&
                           deal.split <= kTileSplitMax;
  if (!is_in_range) return {};
  for (size_t i = 0; i < family.tiles.size(); ++i) {
    const HopperTile& tile = family.tiles[i].tile;
    if (tile.tokens != number("tokens") || deal.blocks > tile.blocks) continue;
    deal.tile_index = static_cast<int>(i);
    std::optional<TilePlan> plan = plan_dealt(family, shape, device, deal);
    if (plan && settings_of(*plan) == settings) return plan;
  }
  return {};
}

}  // namespace halley::cuda
