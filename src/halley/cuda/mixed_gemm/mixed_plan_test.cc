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

/// Every chunk of every tile once; parts of shared tiles where they are looked for.
void expect_covered(const MixedSchedule& schedule) {
  const auto chunks = static_cast<size_t>(schedule.num_chunks);
  std::vector<int> times(static_cast<size_t>(schedule.num_tiles) * chunks);
  std::set<int> slots;
  std::vector<std::vector<int>> blocks(static_cast<size_t>(schedule.num_tiles));
  for (int block = 0; block < schedule.num_blocks; ++block) {
    for (MixedSegment segment = first_segment(schedule, block); segment.num_chunks > 0;
         segment = next_segment(schedule, block, segment)) {
      ASSERT_GE(segment.begin, 0);
      ASSERT_LE(segment.begin + segment.num_chunks, schedule.num_chunks);
      for (int i = 0; i < segment.num_chunks; ++i) {
        ++times.at(static_cast<size_t>(segment.tile) * chunks +
                   static_cast<size_t>(segment.begin + i));
      }
      blocks[static_cast<size_t>(segment.tile)].push_back(block);
      if (segment.num_chunks < schedule.num_chunks) {
        const int slot = partial_slot(schedule, segment.tile, block);
        EXPECT_LT(slot, num_partial_slots(schedule));
        EXPECT_TRUE(slots.insert(slot).second) << "slot " << slot << " twice";
      }
    }
  }
  EXPECT_THAT(times, testing::Each(1));
  for (int tile = schedule.whole_tiles; tile < schedule.num_tiles; ++tile) {
    const MixedSharers sharers = sharers_of(schedule, tile);
    const std::vector<int>& who = blocks[static_cast<size_t>(tile)];
    ASSERT_EQ(static_cast<int>(who.size()), sharers.count) << "tile " << tile;
    EXPECT_EQ(who.front(), sharers.first);
    EXPECT_EQ(who.back(), sharers.first + sharers.count - 1);
  }
}

TEST(MixedSchedule, CoversEveryChunkOnce) {
  for (const int blocks : {1, 2, 7, 132}) {
    for (const int tiles : {1, 3, 31, 66, 133, 300}) {
      for (const int chunks : {1, 2, 5, 32}) {
        const MixedSchedule whole = {std::min(blocks, tiles), tiles, chunks, tiles};
        expect_covered(whole);
        const MixedSchedule rest = {blocks, tiles, chunks, tiles / blocks * blocks};
        const int left = num_shared_chunks(rest);
        if (left == 0 || left >= blocks) expect_covered(rest);
        if (tiles * chunks >= blocks) expect_covered({blocks, tiles, chunks, 0});
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
        EXPECT_LE(plan.schedule.num_blocks, 132);
        EXPECT_LE(plan.schedule.num_tiles - plan.schedule.whole_tiles, kSharedTilesMax);
      }
    }
  }
}

TEST(MixedPlan, FitsInSharedMemory) {
  for (const MixedKind kind : {MixedKind::kU4S8, MixedKind::kU4GroupS8, MixedKind::kU4F16}) {
    for (const MixedTile& tile : kMixedTiles) {
      for (const int group_size : {32, 64, 128}) {
        const int bytes = chunk_bytes(kind, group_size);
        const int stages = num_stages_of(kind, tile, bytes, 232448);
        EXPECT_GE(stages, 3) << kind << " " << tile.tokens << " x " << tile.outputs;
        const MixedShared shared = mixed_shared(kind, tile, bytes, stages);
        EXPECT_LE(shared.num_bytes, 232448);
        // What instructions ask for: copies 16 bytes, barriers 8, the swizzle 1024.
        EXPECT_EQ(shared.x_stage_bytes % kStageAlignment, 0);
        EXPECT_EQ(shared.w_stage_bytes % 16, 0);
        EXPECT_EQ(shared.staging % 16, 0);
        EXPECT_EQ(shared.staging_pitch % 16, 0);
        EXPECT_EQ(shared.barriers % 8, 0);
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

TEST(MixedPlan, IsNarrowForUpToEightRows) {
  EXPECT_TRUE(plan_mixed_gemm({.M = 8, .N = 100, .K = 192}, {}).is_narrow);
  EXPECT_EQ(plan_mixed_gemm({.M = 8, .N = 100, .K = 192}, {}).workspace_bytes(), 0u);
  EXPECT_FALSE(plan_mixed_gemm({.M = 9, .N = 100, .K = 192}, {}).is_narrow);
  EXPECT_FALSE(plan_mixed_gemm({.M = 8, .N = 100, .K = 160}, {}).is_narrow);
}

TEST(MixedPlan, TakesTheLargestTileForManyRows) {
  for (const auto& [N, K] : kShapes) {
    const MixedPlan plan = plan_mixed_gemm({.M = 2048, .N = N, .K = K}, {});
    EXPECT_EQ(plan.tile.tokens, 128) << N << " " << K;
    EXPECT_EQ(plan.tile.outputs, 256) << N << " " << K;
  }
}

TEST(MixedPlan, FillsTheDeviceWithASmallLayer) {
  const MixedPlan plan = plan_mixed_gemm({.M = 16, .N = 4096, .K = 4096}, {});
  EXPECT_GT(plan.schedule.num_blocks, 100) << plan;
  EXPECT_EQ(plan.schedule.whole_tiles, 0);
  EXPECT_GT(plan.workspace_bytes(), 0u);
}

TEST(MixedPlan, InvariantPlansHaveOneTileAndShareNone) {
  for (const auto& [N, K] : kShapes) {
    for (const int64_t M : {1, 8, 16, 65, 2048}) {
      const MixedPlan plan = invariant_mixed_plan({.M = M, .N = N, .K = K}, {});
      EXPECT_FALSE(plan.is_narrow);
      EXPECT_EQ(plan.tile.tokens, 64);
      EXPECT_EQ(plan.schedule.whole_tiles, plan.schedule.num_tiles);
      EXPECT_EQ(plan.workspace_bytes(), 0u);
    }
  }
}

TEST(MixedPlan, NoPlanTakesMoreThanTheMost) {
  const size_t most = mixed_workspace_bytes_max({});
  for (const auto& [N, K] : kShapes) {
    for (int64_t M = 1; M < 700; M += 13) {
      EXPECT_LE(plan_mixed_gemm({.M = M, .N = N, .K = K}, {}).workspace_bytes(), most);
    }
  }
}

TEST(MixedPlan, PrintsItself) {
  EXPECT_EQ(str(narrow_mixed_plan({.M = 1, .N = 300, .K = 256})), "narrow");
  EXPECT_EQ(str(shared_mixed_plan({.M = 20, .N = 300, .K = 256}, {}, 1, 3)),
            "tile 16 tokens x 256 outputs, 12 stages, 4 tiles of 2 chunks on 3 blocks, 4 shared");
}

}  // namespace
}  // namespace halley::cuda
