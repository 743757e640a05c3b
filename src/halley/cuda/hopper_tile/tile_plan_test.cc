#include "halley/cuda/hopper_tile/tile_plan.h"

#include <vector>

#include <gtest/gtest.h>

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

TEST(TilePlan, CoversEveryChunkOnceForAllTilesAndSizes) {
  for (const ProductShape& shape :
       {ProductShape{1, 1, 1}, ProductShape{33, 4096, 4096}, ProductShape{300, 6144, 4096}}) {
    for (int tile = 0; tile < 4; ++tile) {
      const TilePlan plan = plan_one_tile(kFamily, shape, kDevice, tile);
      const TileSchedule& schedule = plan.schedule;
      EXPECT_LE(schedule.num_blocks, kDevice.num_sms);
      std::vector<int> counts(static_cast<size_t>(schedule.num_tiles * schedule.num_chunks));
      for (int block = 0; block < schedule.num_blocks; ++block) {
        for (TileSegment s = first_segment(schedule, block); s.num_chunks > 0;
             s = next_segment(schedule, block, s)) {
          for (int i = 0; i < s.num_chunks; ++i) {
            ++counts[static_cast<size_t>(s.tile * schedule.num_chunks + s.begin + i)];
          }
        }
      }
      for (const int count : counts) ASSERT_EQ(count, 1) << plan;
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
    const TileShared shared = tile_shared(plan.tile, plan.num_stages, plan.stage);
    EXPECT_LE(static_cast<size_t>(shared.num_bytes), kDevice.shared_bytes_max);
    EXPECT_EQ(shared.staging % 16, 0);
    EXPECT_EQ(shared.barriers % 8, 0);
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

TEST(TilePlan, NeedsNoMoreWorkspaceThanItsMost) {
  const size_t most = tile_workspace_bytes_max(kFamily, kDevice.num_sms);
  for (int tile = 0; tile < 4; ++tile) {
    for (const int64_t M : {1, 64, 200, 2048}) {
      EXPECT_LE(plan_one_tile(kFamily, {M, 4096, 14336}, kDevice, tile).workspace_bytes(), most);
    }
  }
}

}  // namespace
}  // namespace halley::cuda
