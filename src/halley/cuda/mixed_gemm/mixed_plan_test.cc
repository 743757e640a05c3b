#include "halley/cuda/mixed_gemm/mixed_plan.h"

#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"

namespace halley::cuda {
namespace {

/// The eight linear layers of Llama-3 8B and 70B, [N, K].
const std::vector<std::pair<int64_t, int64_t>> kShapes = {
    {6144, 4096},  {4096, 4096}, {28672, 4096}, {4096, 14336},
    {10240, 8192}, {8192, 8192}, {57344, 8192}, {8192, 28672}};

/// Every chunk of every tile once, and the parts of a tile in one cluster.
void expect_covered(const MixedSchedule& schedule) {
  const auto chunks = static_cast<size_t>(schedule.num_chunks);
  std::vector<int> times(static_cast<size_t>(schedule.num_tiles) * chunks);
  std::vector<std::vector<int>> blocks(static_cast<size_t>(schedule.num_tiles));
  for (int block = 0; block < schedule.num_blocks; ++block) {
    const int cluster = block / schedule.num_ranks, rank = block % schedule.num_ranks;
    for (MixedSegment segment = first_segment(schedule, cluster, rank); segment.num_chunks > 0;
         segment = next_segment(schedule, segment)) {
      ASSERT_GE(segment.begin, 0);
      ASSERT_LE(segment.begin + segment.num_chunks, schedule.num_chunks);
      for (int i = 0; i < segment.num_chunks; ++i) {
        ++times.at(static_cast<size_t>(segment.tile) * chunks +
                   static_cast<size_t>(segment.begin + i));
      }
      blocks[static_cast<size_t>(segment.tile)].push_back(block);
    }
  }
  EXPECT_THAT(times, testing::Each(1));
  for (const std::vector<int>& who : blocks) {
    ASSERT_EQ(static_cast<int>(who.size()), schedule.num_ranks);
    EXPECT_EQ(who.front() % schedule.num_ranks, 0);
    EXPECT_EQ(who.back(), who.front() + schedule.num_ranks - 1);
  }
}

TEST(MixedSchedule, CoversEveryChunkOnce) {
  for (const int clusters : {1, 2, 7, 66}) {
    for (const int ranks : {1, 2, 3, 8}) {
      for (const int tiles : {1, 3, 66, 133}) {
        for (const int chunks : {8, 9, 32}) {
          expect_covered({std::min(clusters, tiles) * ranks, tiles, chunks, ranks});
        }
      }
    }
  }
}

TEST(MixedPlan, CoversAllShapes) {
  for (const auto& [N, K] : kShapes) {
    for (const int64_t M : {9, 17, 64, 100, 256, 2048}) {
      for (const MixedKind kind : {MixedKind::kU4S8, MixedKind::kU4F16}) {
        const MixedPlan plan = plan_mixed_gemm({.kind = kind, .M = M, .N = N, .K = K}, {});
        SCOPED_TRACE(str(kind, " ", N, " x ", K, ", M ", M, ": ", plan));
        expect_covered(plan.schedule);
        EXPECT_GE(int64_t{plan.token_tiles} * plan.tile.tokens, M);
        EXPECT_GE(int64_t{plan.output_tiles} * plan.tile.outputs, N);
        EXPECT_LE(plan.schedule.num_blocks, 132 * plan.tiling.blocks_per_multiprocessor);
      }
    }
  }
}

TEST(MixedPlan, FitsInSharedMemory) {
  const MixedDevice device;
  for (const MixedKind kind :
       {MixedKind::kU4S8, MixedKind::kU4GroupS8, MixedKind::kU4F16, MixedKind::kU8Bf16}) {
    for (const int group_size : {32, 64, 128}) {
      const MixedShape shape = {kind, 64, 4096, 4096, group_size};
      for (const MixedTiling& tiling : mixed_tilings(shape, device)) {
        const MixedPlan plan = tiled_mixed_plan(shape, device, tiling);
        const MixedShared shared = mixed_shared(kind, plan.tile, chunk_bytes(kind, group_size),
                                                plan.num_stages, tiling.num_ranks);
        SCOPED_TRACE(str(kind, ", ", plan));
        EXPECT_LE((shared.num_bytes + 1024) * tiling.blocks_per_multiprocessor, 228 * 1024);
        // What instructions ask for: copies 16 bytes, barriers 8, the swizzle 1024.
        EXPECT_EQ(shared.x_stage_bytes % kStageAlignment, 0);
        EXPECT_EQ(shared.staging % kStageAlignment, 0);
        EXPECT_EQ(shared.w_stage_bytes % 16, 0);
        EXPECT_EQ(shared.weights % 16, 0);
        EXPECT_EQ(shared.received % 16, 0);
        EXPECT_EQ(shared.token_scales % 16, 0);
        EXPECT_EQ(shared.output_scales % 4, 0);
        EXPECT_EQ(shared.barriers % 8, 0);
      }
    }
  }
}

TEST(MixedPlan, HasAllTilesForALayer) {
  const MixedShape shape = {.M = 64, .N = 4096, .K = 4096};
  std::set<int> tiles, ranks;
  for (const MixedTiling& tiling : mixed_tilings(shape, {})) {
    tiles.insert(tiling.tile_index);
    ranks.insert(tiling.num_ranks);
  }
  EXPECT_EQ(tiles.size(), kMixedTiles.size());
  EXPECT_THAT(ranks, testing::ElementsAre(1, 2, 3, 4, 8));
  EXPECT_FALSE(can_tile({.M = 64, .N = 4096, .K = 256}, {}, {.tile_index = 2, .num_ranks = 3}));
  EXPECT_FALSE(can_tile(shape, {}, {.tile_index = 5, .blocks_per_multiprocessor = 2}));
}

TEST(MixedPlan, TakesCompiledTilesOf8Bits) {
  for (const MixedKind kind : {MixedKind::kU8F16, MixedKind::kU8Bf16}) {
    for (const int group_size : {32, 64, 128}) {
      for (const int64_t M : {1, 2, 3, 16, 17, 64, 100, 2048}) {
        const MixedShape shape = {kind, M, 4096, 4096, group_size};
        const MixedPlan plan = plan_mixed_gemm(shape, {});
        EXPECT_EQ(plan.is_narrow, M <= 2) << plan;
        EXPECT_GE(plan.num_stages, plan.is_narrow ? 2 : 3) << plan;
        if (!plan.is_narrow) {
          EXPECT_TRUE(has_tile(kind, plan.tile)) << plan;
          expect_covered(plan.schedule);
        }
        EXPECT_TRUE(has_tile(kind, invariant_mixed_plan(shape, {}).tile));
      }
    }
  }
  EXPECT_FALSE(
      can_tile({.kind = MixedKind::kU8F16, .M = 200, .N = 512, .K = 512}, {}, {.tile_index = 5}));
}

TEST(MixedPlan, HasOneOrderOfSumsForEveryNumberOfRows) {
  for (const auto& [N, K] : kShapes) {
    const MixedPlan first = invariant_mixed_plan({.M = 1, .N = N, .K = K}, {});
    EXPECT_FALSE(first.is_narrow);
    for (const int64_t M : {7, 64, 65, 3000}) {
      const MixedPlan plan = invariant_mixed_plan({.M = M, .N = N, .K = K}, {});
      EXPECT_EQ(plan.tiling.tile_index, first.tiling.tile_index);
      EXPECT_EQ(plan.tiling.num_ranks, first.tiling.num_ranks);
      expect_covered(plan.schedule);
    }
  }
}

TEST(MixedPlan, NarrowRingsFitInSharedMemory) {
  const MixedDevice device;
  for (const auto& [N, K] : kShapes) {
    for (const MixedKind kind : {MixedKind::kU4S8, MixedKind::kU4F16}) {
      for (const int64_t M : {1, 3, 8}) {
        const MixedPlan plan = narrow_mixed_plan({.kind = kind, .M = M, .N = N, .K = K}, device);
        SCOPED_TRACE(str(kind, ", M ", M, ", ", plan));
        EXPECT_LE(plan.narrow.num_bytes, device.shared_bytes_max);
        EXPECT_GE(plan.num_stages, 2);
        EXPECT_LE(plan.num_stages, kNarrowStagesMax);
        EXPECT_EQ(plan.narrow.stage_bytes % 16, 0);
        EXPECT_EQ(plan.narrow.inputs % 16, 0);
      }
    }
  }
}

TEST(MixedPlan, TakesSmallTilesForFewRows) {
  for (const auto& [N, K] : kShapes) {
    for (const int64_t M : {9, 16}) {
      EXPECT_EQ(plan_mixed_gemm({.M = M, .N = N, .K = K}, {}).tile.tokens, 16) << N << " " << K;
    }
  }
}

TEST(MixedPlan, TakesTilesOf32And48TokensForAsManyRows) {
  std::vector<std::pair<int64_t, int64_t>> shapes = kShapes;
  shapes.emplace_back(5120, 5120);  // not measured
  for (const auto& [N, K] : shapes) {
    for (const int64_t M : {17, 32, 33, 48}) {
      const MixedPlan plan =
          plan_mixed_gemm({.kind = MixedKind::kU4F16, .M = M, .N = N, .K = K}, {});
      EXPECT_EQ(plan.tile.tokens, M <= 32 ? 32 : 48)
          << N << " " << K << ", M " << M << ": " << plan;
    }
  }
}

TEST(MixedPlan, IsNarrowForFewRows) {
  EXPECT_TRUE(plan_mixed_gemm({.M = 4, .N = 100, .K = 190}, {}).is_narrow);
  EXPECT_TRUE(plan_mixed_gemm({.M = 1, .N = 6144, .K = 4096}, {}).is_narrow);  // measured
  EXPECT_FALSE(plan_mixed_gemm({.M = 5, .N = 100, .K = 190}, {}).is_narrow);
  EXPECT_TRUE(can_be_narrow({.M = 8, .N = 100, .K = 190}));
  EXPECT_FALSE(can_be_narrow({.M = 9, .N = 100, .K = 190}));
}

TEST(MixedPlan, TakesLargeTilesForManyRows) {
  for (const auto& [N, K] : kShapes) {
    const MixedPlan plan = plan_mixed_gemm({.M = 2048, .N = N, .K = K}, {});
    EXPECT_EQ(plan.tile.tokens, 128) << N << " " << K;
    EXPECT_EQ(plan.schedule.num_ranks, 1) << N << " " << K;
  }
}

TEST(MixedPlan, SharesTilesOfASmallLayer) {
  const MixedPlan plan = plan_mixed_gemm({.M = 16, .N = 4096, .K = 4096}, {});
  EXPECT_GT(plan.schedule.num_blocks, 50) << plan;
  EXPECT_GT(plan.schedule.num_ranks, 1) << plan;
}

TEST(MixedPlan, PrintsItself) {
  EXPECT_EQ(str(narrow_mixed_plan({.M = 1, .N = 300, .K = 256}, {})),
            "narrow, 1 rows at a time, 1 stages, 19 rows of 2 chunks on 19 blocks");
  EXPECT_EQ(str(tiled_mixed_plan({.M = 20, .N = 300, .K = 256}, {}, {1, 2, 1})),
            "tile 16 tokens x 256 outputs, 11 stages, 4 tiles of 2 chunks on 8 blocks, 2 a tile, "
            "1 a multiprocessor");
}

}  // namespace
}  // namespace halley::cuda
