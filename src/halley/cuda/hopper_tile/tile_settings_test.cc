#include "halley/cuda/hopper_tile/tile_settings.h"

#include <gtest/gtest.h>

#include "halley/cuda/tuning/tuned_plans.h"

namespace halley::cuda {
namespace {

const CudaDeviceInfo kDevice = {.compute_major = 9, .num_sms = 132, .shared_bytes_max = 232448};

constexpr StageNeeds stage_of(const HopperTile& tile) { return {16384 + tile.tokens * 128, 1}; }
constexpr TimedTile kTiles[] = {{{16}, 1, 1, 1, 1}, {{64, 2}, 2, 1, 1, 1}};
constexpr TileFamily kFamily = {
    .name = "a_kernel", .tiles = kTiles, .stage_inputs = 64, .weight_bits = 16, .stage = stage_of};
constexpr ProductShape kShape = {.M = 50, .N = 6144, .K = 4096};

TEST(TileSettings, GiveThePlanThatTheyAreOf) {
  int num_plans = 0;
  for (const int tile : {0, 1}) {
    for (const TilePlan& plan : plans_of_tile(kFamily, kShape, kDevice, tile)) {
      const auto read = tile_plan_of(kFamily, kShape, kDevice, settings_of(plan));
      ASSERT_TRUE(read) << plan;
      EXPECT_EQ(read->tile.tokens, plan.tile.tokens);
      EXPECT_EQ(read->schedule.num_blocks, plan.schedule.num_blocks);
      EXPECT_EQ(read->num_stages, plan.num_stages);
      EXPECT_EQ(read->split, plan.split);
      ++num_plans;
    }
  }
  EXPECT_GT(num_plans, 10);
}

TEST(TileSettings, OfWhatIsNotCompiledGiveNoPlan) {
  const PlanSettings usual = settings_of(plans_of_tile(kFamily, kShape, kDevice, 1).front());
  ASSERT_TRUE(tile_plan_of(kFamily, kShape, kDevice, usual));
  const auto with = [&](const char* name, int64_t value) {
    PlanSettings settings = usual;
    settings[name] = value;
    return tile_plan_of(kFamily, kShape, kDevice, settings).has_value();
  };
  EXPECT_FALSE(with("tokens", 128));
  EXPECT_FALSE(with("ctas_per_sm", 0));
  EXPECT_FALSE(with("ctas_per_sm", 3));
  EXPECT_FALSE(with("shared_rounds", 100));
  EXPECT_FALSE(with("parts", 1 << 30));
  EXPECT_FALSE(with("split", 1 << 30));
  EXPECT_FALSE(with("colour", 1));
  EXPECT_FALSE(tile_plan_of(kFamily, kShape, kDevice, {}));
}

/// A measured plan decides, where it can be; else estimates do.
TEST(TileSettings, OfTheTableDecide) {
  const TilePlan by_estimate = plan_tiles(kFamily, kShape, kDevice);
  for (const int tile : {0, 1}) {
    for (const TilePlan& plan : plans_of_tile(kFamily, kShape, kDevice, tile)) {
      set_tuned_plans({"a GPU",
                       132,
                       {{.gemm = tuned_gemm_of(kFamily, kShape),
                         .rows = 64,
                         .settings = settings_of(plan),
                         .microseconds = 1}}});
      EXPECT_EQ(settings_of(plan_tiles(kFamily, kShape, kDevice)), settings_of(plan));
    }
  }
  set_tuned_plans({"a GPU",
                   132,
                   {{.gemm = tuned_gemm_of(kFamily, kShape),
                     .rows = 64,
                     .settings = {{"tokens", 32}},
                     .microseconds = 1}}});
  EXPECT_EQ(settings_of(plan_tiles(kFamily, kShape, kDevice)), settings_of(by_estimate));
  set_tuned_plans({});
}

}  // namespace
}  // namespace halley::cuda
