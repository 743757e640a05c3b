#include "halley/cuda/hopper_tile/tile_plan.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"

namespace halley::cuda {
namespace {

const CudaDeviceInfo kDevice = {.num_sms = 132, .shared_bytes_max = 232448};
constexpr TimedTile kTiles[] = {
    {{16}, 0.3, 0.3, 2.6}, {{64}, 0.4, 0.8, 3.7}, {{128}, 0.5, 1.0, 4.0}, {{256}, 0.8, 2.2, 5.5}};
constexpr TileFamily kFamily = {
    .name = "a test",
    .tiles = kTiles,
    .stage_inputs = 64,
    .weight_bits = 16,
    .stage = [](const HopperTile& t) { return StageNeeds{t.tokens * 128 + 16384}; }};

/// All that a launch is made of.
auto fields_of(const TilePlan& plan) {
  const TileSchedule& schedule = plan.schedule;
  return std::tuple(plan.tile_index, plan.token_tiles, plan.num_stages, plan.split,
                    schedule.num_blocks, schedule.num_tiles, schedule.num_chunks,
                    schedule.whole_tiles, schedule.parts);
}

const std::vector<ProductShape> kShapes = {{1, 1, 1},         {16, 128, 64},     {33, 4096, 4096},
                                           {300, 6144, 4096}, {130, 1000, 1500}, {17, 40000, 200}};

CudaDeviceInfo device_of(int num_sms) { return {.num_sms = num_sms, .shared_bytes_max = 232448}; }

/// Calls f(shape, device, plan) with all plans of all tiles.
template <typename F>
void for_all_plans(const F& f) {
  for (const int num_sms : {132, 114, 78, 7, 1}) {
    const CudaDeviceInfo device = device_of(num_sms);
    for (const ProductShape& shape : kShapes) {
      for (int tile = 0; tile < static_cast<int>(kFamily.tiles.size()); ++tile) {
        for (const TilePlan& plan : plans_of_tile(kFamily, shape, device, tile)) {
          SCOPED_TRACE(str(shape.M, " x ", shape.N, " x ", shape.K, ", ", num_sms, " SMs, ", plan));
          f(shape, device, plan);
        }
      }
    }
  }
}

TEST(TilePlan, CoversEveryChunkOnceForAllPlans) {
  for_all_plans([](const ProductShape& shape, const CudaDeviceInfo&, const TilePlan& plan) {
    const TileSchedule& schedule = plan.schedule;
    EXPECT_GE(int64_t{plan.token_tiles} * plan.tile.tokens, shape.M);
    EXPECT_GE(int64_t{schedule.num_tiles / plan.token_tiles} * kTileOutputs, shape.N);
    EXPECT_GE(int64_t{schedule.num_chunks} * kFamily.stage_inputs, shape.K);
    std::vector<int> counts(static_cast<size_t>(schedule.num_tiles * schedule.num_chunks));
    for (int block = 0; block < schedule.num_blocks; ++block) {
      for (TileSegment s = first_segment(schedule, block); s.num_chunks > 0;
           s = next_segment(schedule, block, s)) {
        for (int i = 0; i < s.num_chunks; ++i) {
          ++counts.at(static_cast<size_t>(s.tile * schedule.num_chunks + s.begin + i));
        }
      }
    }
    EXPECT_EQ(std::ranges::count(counts, 1), std::ssize(counts));
  });
}

TEST(TilePlan, SharersOfATileAreTheBlocksThatHaveChunksOfIt) {
  for_all_plans([](const ProductShape&, const CudaDeviceInfo&, const TilePlan& plan) {
    const TileSchedule& schedule = plan.schedule;
    std::vector<std::set<int>> blocks(static_cast<size_t>(schedule.num_tiles));
    std::set<int> slots;
    for (int block = 0; block < schedule.num_blocks; ++block) {
      for (TileSegment s = first_segment(schedule, block); s.num_chunks > 0;
           s = next_segment(schedule, block, s)) {
        blocks[static_cast<size_t>(s.tile)].insert(block);
        if (s.num_chunks == schedule.num_chunks) continue;  // nobody else has any of it
        const int slot = partial_slot(schedule, s.tile, block);
        EXPECT_TRUE(slots.insert(slot).second) << slot;
        EXPECT_LT(slot, num_partial_slots(schedule));
      }
    }
    for (int tile = schedule.whole_tiles; tile < schedule.num_tiles; ++tile) {
      const TileSharers sharers = sharers_of(schedule, tile);
      const std::set<int>& who = blocks[static_cast<size_t>(tile)];
      EXPECT_EQ(*who.begin(), sharers.first);
      EXPECT_EQ(std::ssize(who), sharers.count);
      EXPECT_EQ(*who.rbegin(), sharers.first + sharers.count - 1);
    }
  });
}

TEST(TilePlan, FitsTheDevice) {
  const size_t most = tile_workspace_bytes_max(kFamily, kDevice.num_sms);
  int num_plans = 0;
  for_all_plans([&](const ProductShape&, const CudaDeviceInfo& device, const TilePlan& plan) {
    const int blocks = plan.schedule.num_blocks * plan.split;
    EXPECT_LE(blocks, device.num_sms * plan.tile.blocks);
    EXPECT_GE(plan.num_stages, 2);
    const TileShared shared = tile_shared(plan.tile, plan.num_stages, plan.stage);
    EXPECT_LE(static_cast<size_t>(shared.num_bytes), device.shared_bytes_max);
    EXPECT_EQ(shared.staging % 16, 0);
    EXPECT_EQ(shared.barriers % 8, 0);
    EXPECT_LE(plan.split, plan.schedule.num_chunks);
    EXPECT_LE(plan.workspace_bytes(), most);
    ++num_plans;
  });
  EXPECT_GT(num_plans, 200);
}

TEST(TilePlan, IsTheSameEveryTime) {
  for (const ProductShape& shape : kShapes) {
    const TilePlan first = plan_tiles(kFamily, shape, kDevice);
    const TilePlan second = plan_tiles(kFamily, shape, kDevice);
    EXPECT_EQ(fields_of(first), fields_of(second)) << first;
  }
}

TEST(TilePlan, InvariantPlansHaveOneTileAndShareNothing) {
  for (const int num_sms : {132, 7}) {
    for (const int64_t M : {1, 64, 65, 3000}) {
      const TilePlan plan = plan_invariant_tiles(kFamily, {M, 4096, 4096}, device_of(num_sms));
      EXPECT_EQ(plan.tile_index, 1) << plan;
      EXPECT_EQ(plan.split, 1) << plan;
      EXPECT_EQ(num_shared_chunks(plan.schedule), 0) << plan;
    }
  }
}

TEST(TilePlan, TakesSmallTilesForFewTokensAndLargeOnesForMany) {
  EXPECT_EQ(plan_tiles(kFamily, {1, 28672, 4096}, kDevice).tile.tokens, 16);
  EXPECT_EQ(plan_tiles(kFamily, {2048, 28672, 4096}, kDevice).tile.tokens, 256);
}

TEST(TilePlan, FillsSharedMemoryWithStages) {
  for (int tile = 0; tile < 4; ++tile) {
    const TilePlan plan = plan_one_tile(kFamily, {64, 4096, 4096}, kDevice, tile);
    EXPECT_GE(plan.num_stages, 4);
    if (plan.num_stages == kTileStagesMax) continue;
    const TileShared more = tile_shared(plan.tile, plan.num_stages + 1, plan.stage);
    EXPECT_GT(static_cast<size_t>(more.num_bytes), kDevice.shared_bytes_max) << plan;
  }
}

/// Two blocks of a tile share an SM only where there are more than SMs.
TEST(TilePlan, FewBlocksHaveAllOfTheSharedMemory) {
  constexpr TimedTile kSmall[] = {{{16, 2}, 0.3, 0.3, 2.6, 1}};
  TileFamily family = kFamily;
  family.tiles = kSmall;
  const TilePlan few = plan_dealt(family, {16, 4096, 4096}, kDevice, {.split = 2}).value();
  const TilePlan many = plan_one_tile(family, {16, 57344, 8192}, kDevice, 0);
  EXPECT_GT(many.schedule.num_blocks, kDevice.num_sms);
  EXPECT_GE(few.num_stages, 2 * many.num_stages);
  const TileShared shared = tile_shared(many.tile, many.num_stages, many.stage);
  EXPECT_LE(2 * (static_cast<size_t>(shared.num_bytes) + kSystemSharedBytes),
            kDevice.shared_bytes_max + kSystemSharedBytes);
}

/// Weights would no longer be in the L2 cache where the next tile of tokens wants them.
TEST(TilePlan, SharesManyTilesOnlyWhereTheCacheKeepsThem) {
  const TilePlan one_row = plan_one_tile(kFamily, {256, 10240, 8192}, kDevice, 3);
  EXPECT_EQ(one_row.token_tiles, 1);
  EXPECT_LT(one_row.schedule.whole_tiles, one_row.schedule.num_tiles);
  const TilePlan many_rows = plan_one_tile(kFamily, {1024, 8192, 28672}, kDevice, 3);
  EXPECT_EQ(many_rows.schedule.whole_tiles, many_rows.schedule.num_tiles) << many_rows;
}

}  // namespace
}  // namespace halley::cuda
