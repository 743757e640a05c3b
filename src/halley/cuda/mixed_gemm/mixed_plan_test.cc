#include "halley/cuda/mixed_gemm/mixed_plan.h"

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
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

template <bool kHasGivers>
std::vector<MixedSegment> segments_of(const DealtSchedule& schedule, const MixedBlock& block) {
  std::vector<MixedSegment> segments;
  for (MixedSegment segment = first_segment<kHasGivers>(schedule, block); segment.num_chunks > 0;
       segment = next_segment<kHasGivers>(schedule, block, segment)) {
    segments.push_back(segment);
  }
  return segments;
}

/// Of all blocks, each one's in their order.
std::vector<std::vector<MixedSegment>> segments_of(const MixedSchedule& plain) {
  const DealtSchedule schedule(plain);
  std::vector<std::vector<MixedSegment>> segments;
  for (int index = 0; index < schedule.num_blocks; ++index) {
    const MixedBlock block = {index / schedule.num_ranks, index % schedule.num_ranks};
    segments.push_back(schedule.num_givers > 0 ? segments_of<true>(schedule, block)
                                               : segments_of<false>(schedule, block));
  }
  return segments;
}

/// Every chunk of every tile once.
void expect_all_once(const MixedSchedule& schedule) {
  const auto chunks = static_cast<size_t>(schedule.num_chunks);
  std::vector<int> times(static_cast<size_t>(schedule.num_tiles) * chunks);
  for (const auto& of_block : segments_of(schedule)) {
    for (const MixedSegment& segment : of_block) {
      ASSERT_GE(segment.begin, 0);
      ASSERT_LE(segment.begin + segment.num_chunks, schedule.num_chunks);
      for (int i = 0; i < segment.num_chunks; ++i) {
        ++times.at(static_cast<size_t>(segment.tile) * chunks +
                   static_cast<size_t>(segment.begin + i));
      }
    }
  }
  EXPECT_THAT(times, testing::Each(1));
}

/// The parts of a tile in one cluster.
void expect_clusters(const MixedSchedule& schedule) {
  std::vector<std::vector<int>> blocks(static_cast<size_t>(schedule.num_tiles));
  const auto segments = segments_of(schedule);
  for (int block = 0; block < schedule.num_blocks; ++block) {
    for (const MixedSegment& segment : segments[static_cast<size_t>(block)]) {
      blocks[static_cast<size_t>(segment.tile)].push_back(block);
    }
  }
  for (const std::vector<int>& who : blocks) {
    ASSERT_EQ(static_cast<int>(who.size()), schedule.num_ranks);
    EXPECT_EQ(who.front() % schedule.num_ranks, 0);
    EXPECT_EQ(who.back(), who.front() + schedule.num_ranks - 1);
  }
}

/// Givers leave what they have in slots of their own before they own anything, in the order in
/// which the tile's owner, one block, reads them.
void expect_givers(const MixedSchedule& schedule) {
  std::vector<int> owners(static_cast<size_t>(schedule.num_tiles));
  std::set<int> slots;
  std::vector<std::vector<int>> of_tile(static_cast<size_t>(schedule.num_tiles));
  const auto segments = segments_of(schedule);
  const DealtSchedule dealt(schedule);
  for (int block = 0; block < schedule.num_blocks; ++block) {
    bool has_finished = false;
    for (const MixedSegment& segment : segments[static_cast<size_t>(block)]) {
      const auto tile = static_cast<size_t>(segment.tile);
      if (is_givers(schedule, segment)) {
        EXPECT_LT(block, schedule.num_givers);
        EXPECT_FALSE(has_finished);
        EXPECT_GE(segment.tile, num_whole_tiles(schedule));
        const int slot = slot_of(schedule, giver_part(dealt, block), segment.tile);
        EXPECT_TRUE(slots.insert(slot).second) << slot;
        of_tile[tile].push_back(slot);
        continue;
      }
      has_finished = true;
      ++owners[tile];
      EXPECT_EQ(is_owners(schedule, segment), segment.tile >= num_whole_tiles(schedule));
      EXPECT_EQ(is_owners(schedule, segment), segment.num_chunks < schedule.num_chunks);
    }
  }
  EXPECT_THAT(owners, testing::Each(1));
  EXPECT_LT(*slots.rbegin(), num_slots(schedule));
  for (int tile = num_whole_tiles(schedule); tile < schedule.num_tiles; ++tile) {
    const MixedSlots expected = slots_of(dealt, tile);
    std::vector<int> all(static_cast<size_t>(expected.count));
    std::iota(all.begin(), all.end(), expected.first);
    EXPECT_THAT(of_tile[static_cast<size_t>(tile)], testing::UnorderedElementsAreArray(all))
        << tile;
  }
}

void expect_covered(const MixedSchedule& schedule) {
  expect_all_once(schedule);
  if (schedule.num_givers > 0) {
    expect_givers(schedule);
  } else {
    expect_clusters(schedule);
  }
}

/// All that a launch is made of.
auto fields_of(const MixedPlan& plan) {
  return std::tuple(plan.is_narrow, plan.narrow.rows, plan.tiling.tile_index, plan.tiling.num_ranks,
                    plan.tiling.blocks_per_multiprocessor, plan.num_stages,
                    plan.schedule.num_blocks, plan.schedule.num_tiles, plan.schedule.num_chunks,
                    plan.schedule.num_givers, plan.schedule.own_chunks);
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

TEST(MixedSchedule, CoversEveryChunkOnceWithGivers) {
  for (const int owners : {1, 2, 13, 80}) {
    for (const int givers : {1, 2, 7, 26, 52}) {
      for (const int waves : {0, 2}) {
        for (const int chunks : {3, 64}) {
          for (const int own : {1, chunks / 2, chunks - 1}) {
            const int blocks = owners + givers;
            const MixedSchedule schedule = {.num_blocks = blocks,
                                            .num_tiles = waves * blocks + owners,
                                            .num_chunks = chunks,
                                            .num_givers = givers,
                                            .own_chunks = own};
            if (num_left_chunks(schedule) < givers) continue;
            SCOPED_TRACE(str(owners, " owners, ", givers, " givers, ", waves, " waves, ", own,
                             " of ", chunks, " chunks"));
            expect_covered(schedule);
          }
        }
      }
    }
  }
}

/// What every plan in tiles promises for its shape.
void expect_sound(const MixedShape& shape, const MixedDevice& device, const MixedPlan& plan) {
  SCOPED_TRACE(str(shape.kind, " ", shape.N, " x ", shape.K, ", M ", shape.M, ", groups of ",
                   shape.group_size, ", ", device.num_sms, " SMs: ", plan));
  const MixedSchedule& schedule = plan.schedule;
  expect_covered(schedule);
  EXPECT_GE(int64_t{plan.token_tiles} * plan.tile.tokens, shape.M);
  EXPECT_LT(int64_t{plan.token_tiles - 1} * plan.tile.tokens, shape.M);
  EXPECT_GE(int64_t{plan.output_tiles} * plan.tile.outputs, shape.N);
  EXPECT_LT(int64_t{plan.output_tiles - 1} * plan.tile.outputs, shape.N);
  EXPECT_EQ(schedule.num_tiles, plan.token_tiles * plan.output_tiles);
  EXPECT_EQ(schedule.num_chunks, (shape.K + kChunkInputs - 1) / kChunkInputs);
  EXPECT_LE(schedule.num_blocks, device.num_sms * plan.tiling.blocks_per_multiprocessor);
  EXPECT_LE(plan.workspace_bytes(), mixed_workspace_bytes_max(device));
  const MixedShared shared =
      mixed_shared(shape.kind, plan.tile, chunk_bytes(shape.kind, shape.group_size),
                   plan.num_stages, plan.tiling.num_ranks);
  const int blocks = plan.tiling.blocks_per_multiprocessor;
  EXPECT_LE(shared.num_bytes, device.shared_bytes_max);
  EXPECT_LE((shared.num_bytes + 1024) * blocks, device.shared_bytes_max + 1024);
}

/// Whole GPUs, and the smallest slice of one.
TEST(MixedPlan, IsSoundForAllShapesAndDevices) {
  for (const int num_sms : {132, 114, 78, 16}) {
    const MixedDevice device = {.num_sms = num_sms};
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{1, 1},
                               {127, 129},
                               {300, 8192},
                               {4096, 4096},
                               {4096, 14336},
                               {28672, 4096}}) {
      for (const int64_t M : {9, 16, 17, 64, 100, 257, 2048}) {
        for (const MixedKind kind :
             {MixedKind::kU4S8, MixedKind::kU4GroupS8, MixedKind::kU4F16, MixedKind::kU8F16}) {
          const MixedShape shape = {.kind = kind, .M = M, .N = N, .K = K};
          const MixedPlan plan = plan_mixed_gemm(shape, device);
          ASSERT_FALSE(plan.is_narrow) << plan;
          expect_sound(shape, device, plan);
        }
      }
    }
  }
}

TEST(MixedPlan, IsSoundForEveryTiling) {
  for (const int num_sms : {132, 16}) {
    const MixedDevice device = {.num_sms = num_sms};
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{390, 1100}, {4096, 4096}}) {
      for (const int64_t M : {1, 20, 64, 300}) {
        const MixedShape shape = {.kind = MixedKind::kU4F16, .M = M, .N = N, .K = K};
        for (const MixedTiling& tiling : mixed_tilings(shape, device)) {
          expect_sound(shape, device, tiled_mixed_plan(shape, device, tiling));
        }
      }
    }
  }
}

TEST(MixedPlan, IsTheSameEveryTime) {
  for (const auto& [N, K] : kShapes) {
    for (const int64_t M : {1, 16, 100, 2048}) {
      const MixedShape shape = {.kind = MixedKind::kU4F16, .M = M, .N = N, .K = K};
      const MixedPlan first = plan_mixed_gemm(shape, {}), second = plan_mixed_gemm(shape, {});
      EXPECT_EQ(fields_of(first), fields_of(second)) << first;
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
  EXPECT_THAT(ranks, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_FALSE(can_tile({.M = 64, .N = 4096, .K = 256}, {}, {.tile_index = 2, .num_ranks = 3}));
  EXPECT_FALSE(can_tile(shape, {}, {.tile_index = 5, .blocks_per_multiprocessor = 2}));
}

TEST(MixedPlan, TakesCompiledTilesOf8Bits) {
  for (const MixedKind kind : {MixedKind::kU8F16, MixedKind::kU8Bf16}) {
    for (const int group_size : {32, 64, 128}) {
      for (const int64_t M : {1, 2, 3, 16, 17, 64, 100, 2048}) {
        const MixedShape shape = {kind, M, 4000, 4096, group_size};  // not measured
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

TEST(MixedPlan, SharesTheLastTiles) {
  const MixedShape shape = {.M = 128, .N = 10240, .K = 8192};
  const MixedTiling tiling = {.tile_index = 4, .shares_last_tiles = true};
  const MixedPlan plan_of_layer = tiled_mixed_plan(shape, {}, tiling);
  EXPECT_GT(plan_of_layer.schedule.num_givers, 0);
  // Nobody has as much to do as a tile, which somebody would have otherwise.
  for (const auto& of_block : segments_of(plan_of_layer.schedule)) {
    int num_chunks = 0;
    for (const MixedSegment& segment : of_block) num_chunks += segment.num_chunks;
    EXPECT_GT(num_chunks, 0) << plan_of_layer;
    EXPECT_LT(num_chunks, plan_of_layer.schedule.num_chunks) << plan_of_layer;
  }
  // Every SM has one, or too few chunks.
  EXPECT_FALSE(can_tile({.M = 128, .N = 132 * 128, .K = 8192}, {}, tiling));
  EXPECT_FALSE(can_tile({.M = 128, .N = 10240, .K = 128}, {}, tiling));
  // Not compiled: few tokens, several groups of a chunk.
  EXPECT_FALSE(can_tile({.M = 16, .N = 10240, .K = 8192}, {}, {.shares_last_tiles = true}));
  for (const MixedKind kind : {MixedKind::kU4GroupS8, MixedKind::kU4F16}) {
    EXPECT_TRUE(can_tile({kind, 128, 10240, 8192, 128}, {}, tiling));
    EXPECT_EQ(can_tile({kind, 128, 10240, 8192, 64}, {}, tiling), is_s8(kind));
  }
  for (const auto& [N, K] : kShapes) {
    for (const int64_t M : {64, 300}) {
      const MixedShape layer = {.M = M, .N = N, .K = K};
      for (const MixedTiling& each : mixed_tilings(layer, {})) {
        if (!each.shares_last_tiles) continue;
        const MixedPlan plan = tiled_mixed_plan(layer, {}, each);
        SCOPED_TRACE(str(N, " x ", K, ", M ", M, ": ", plan));
        expect_covered(plan.schedule);
        EXPECT_LE(plan.schedule.num_blocks, 132 * each.blocks_per_multiprocessor);
        EXPECT_LE(plan.workspace_bytes(), mixed_workspace_bytes_max({}));
      }
    }
  }
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
      EXPECT_LE(plan_mixed_gemm({.M = M, .N = N, .K = K}, {}).tile.tokens, 32) << N << " " << K;
    }
  }
}

TEST(MixedPlan, TakesTilesOf32And48TokensForAsManyRows) {
  // Not measured: the rule says.
  const std::vector<std::pair<int64_t, int64_t>> shapes = {
      {5120, 5120}, {7168, 5120}, {27648, 5120}};
  for (const auto& [N, K] : shapes) {
    for (const int64_t M : {17, 32, 33, 48}) {
      const MixedPlan plan =
          plan_mixed_gemm({.kind = MixedKind::kU4F16, .M = M, .N = N, .K = K}, {});
      EXPECT_GE(plan.tile.tokens, M) << N << " " << K << ": " << plan;
      EXPECT_LE(plan.tile.tokens, 48) << N << " " << K << ", M " << M << ": " << plan;
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

/// Measurements know plans by their text.
TEST(MixedPlan, PlansThatDifferPrintDifferently) {
  std::map<std::string, decltype(fields_of(MixedPlan()))> plans;
  const auto expect_own_text = [&](const MixedPlan& plan) {
    const auto [found, is_new] = plans.emplace(str(plan), fields_of(plan));
    EXPECT_EQ(found->second, fields_of(plan)) << plan;
  };
  for (const int64_t M : {1, 8, 20, 128, 300}) {
    const MixedShape shape = {.kind = MixedKind::kU4F16, .M = M, .N = 4096, .K = 4096};
    if (can_be_narrow(shape)) expect_own_text(narrow_mixed_plan(shape, {}));
    for (const MixedTiling& tiling : mixed_tilings(shape, {})) {
      expect_own_text(tiled_mixed_plan(shape, {}, tiling));
    }
  }
  EXPECT_GT(plans.size(), 20U);
}

}  // namespace
}  // namespace halley::cuda
