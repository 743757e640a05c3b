// Plans of products with streamed weights: they fit the GPU and reach every output and input.
#include "halley/cuda/gemm/streamed_plan.h"

#include <algorithm>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"

namespace halley::cuda {
namespace {

constexpr int64_t kSizes[][2] = {{1, 1},        {7, 9},        {64, 64},      {333, 1040},
                                 {4096, 4096},  {6144, 4096},  {28672, 4096}, {4096, 14336},
                                 {10240, 8192}, {57344, 8192}, {8192, 28672}, {128256, 4096},
                                 {1024, 131072}};
constexpr DType kDtypes[] = {DType::kF16, DType::kBf16, DType::kF8E4M3, DType::kI8};

std::string name_of(const StreamedShape& shape, const StreamedPlan& plan) {
  return str(shape.dtype, " M ", shape.M, " N ", shape.N, " K ", shape.K,
             shape.is_gated ? " gated" : "", ": tile ", plan.tile_index, " rows ", plan.box_rows,
             " tiles ", plan.num_tiles, " split ", plan.split, " clusters ", plan.num_clusters,
             " chunks ", plan.stage_chunks, " stages ", plan.num_stages);
}

/// What the kernel relies on.
void expect_sound(const StreamedShape& shape, const StreamedDevice& device,
                  const StreamedPlan& plan) {
  SCOPED_TRACE(name_of(shape, plan));
  const StreamedTile& tile = plan.tile();
  EXPECT_GE(plan.tokens, shape.M);
  EXPECT_TRUE(plan.tokens == 8 || plan.tokens == 16 || plan.tokens == 32 || plan.tokens == 64);
  EXPECT_EQ(plan.box_rows % 8, 0);
  EXPECT_GT(plan.box_rows, 0);
  EXPECT_LE(plan.box_rows, tile.warpgroups * 64);
  EXPECT_TRUE(!shape.is_gated || tile.boxes == 2);
  // Every output is in a tile, and no tile is without.
  const int64_t places = shape.is_gated ? shape.N / 2 : shape.N;
  const int64_t tile_places = shape.is_gated ? plan.box_rows : plan.tile_outputs();
  EXPECT_GE(plan.num_tiles * tile_places, places);
  EXPECT_LT((plan.num_tiles - 1) * tile_places, places);
  // Every input is in a stage, and every block of a cluster has a stage.
  const int64_t row_bytes = shape.K * bits_of(shape.dtype) / 8;
  const int64_t step_bytes = int64_t{plan.stage_chunks} * kStreamedChunkBytes;
  EXPECT_GE(plan.num_steps * step_bytes, row_bytes);
  EXPECT_LT((plan.num_steps - 1) * step_bytes, row_bytes);
  EXPECT_GE(plan.num_steps, plan.split);
  EXPECT_TRUE(shape.dtype != DType::kF8E4M3 || plan.stage_chunks % 2 == 0);
  EXPECT_LE(plan.stage_chunks * tile.boxes, 16);  // lanes that copy weights
  EXPECT_LE(plan.stage_chunks, 16);               // lanes that copy inputs
  EXPECT_LE(plan.num_clusters * plan.split, device.num_sms);
  EXPECT_TRUE(plan.split == 1 || plan.num_tiles == plan.num_clusters);

  EXPECT_GE(plan.num_stages, 2);
  EXPECT_LE(plan.num_stages, kStreamedStagesMax);
  EXPECT_GE(plan.early_stages, 1);
  EXPECT_LE(plan.early_stages, plan.num_stages);
  const StreamedShared shared = streamed_shared(plan);
  EXPECT_LE(shared.num_bytes, device.shared_bytes_max);
  EXPECT_EQ(shared.w_stage_bytes % 1024, 0);
  EXPECT_EQ(shared.x_stage_bytes % 1024, 0);
  EXPECT_EQ(shared.staging % 16, 0);
  EXPECT_EQ(shared.staging_pitch % 4, 0);
  EXPECT_EQ(shared.output_scales % 16, 0);
  EXPECT_EQ(shared.barriers % 8, 0);
  EXPECT_LE(shared.staging + plan.split * shared.staged_tokens * shared.staging_pitch * 4,
            shared.token_scales);
  EXPECT_TRUE(plan.split == 1 || plan.split * shared.staged_tokens == plan.tokens);
  // Where there is another tile, its stages come while sums are staged; in clusters other blocks
  // send theirs while this one multiplies.
  if (plan.num_tiles > plan.num_clusters || plan.split > 1) {
    EXPECT_GE(shared.staging, shared.inputs + plan.num_stages * shared.x_stage_bytes);
  }
}

TEST(StreamedPlan, IsSoundForAllShapes) {
  for (const DType dtype : kDtypes) {
    for (const auto& [N, K] : kSizes) {
      for (const int64_t M : {1, 8, 9, 16, 17, 32, 33, 64}) {
        for (const bool is_gated : {false, true}) {
          if (is_gated && N % 2 != 0) continue;
          const StreamedShape shape = {dtype, M, N, K, is_gated};
          for (const int num_sms : {132, 114, 78, 1}) {
            const StreamedDevice device = {.num_sms = num_sms};
            const StreamedPlan plan = plan_streamed(shape, device);
            expect_sound(shape, device, plan);
            EXPECT_EQ(plan_streamed(shape, device), plan) << name_of(shape, plan);
          }
        }
      }
    }
  }
}

TEST(StreamedPlan, OfAllChoicesThatCanBeMadeIsSound) {
  const StreamedDevice device;
  int num_choices = 0;
  for (const DType dtype : kDtypes) {
    for (const auto& [N, K] : kSizes) {
      for (const int64_t M : {1, 16, 32, 64}) {
        for (int tile = 0; tile < static_cast<int>(kStreamedTiles.size()); ++tile) {
          for (const int split : {1, 2, 4}) {
            for (const int rounds : {1, 2, 5}) {
              for (const int stage_chunks : {1, 2, 4, 8}) {
                const StreamedChoice choice = {tile, split, rounds, stage_chunks, 113 << 10};
                const StreamedShape shape = {dtype, M, N, K};
                if (!can_be_streamed(shape, device, choice)) continue;
                ++num_choices;
                expect_sound(shape, device, streamed_plan_of(shape, device, choice));
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(num_choices, 1000);
}

TEST(StreamedPlan, OfFewRowsHasItsFirstWeightsEarly) {
  const StreamedDevice device;
  // All that its ring takes, of much.
  const StreamedPlan large = plan_streamed({DType::kF16, 1, 28672, 4096}, device);
  EXPECT_EQ(large.early_stages, large.num_stages);
  const StreamedPlan many_rows = plan_streamed({DType::kF16, 64, 28672, 4096}, device);
  EXPECT_LT(many_rows.early_stages, many_rows.num_stages);
  // A ring for all of a block's weights.
  const StreamedPlan small = plan_streamed({DType::kF8E4M3, 1, 6144, 4096}, device);
  EXPECT_EQ(small.num_stages, small.num_steps);
}

TEST(StreamedPlan, SplitsInputsAlikeForAllRows) {
  // A row's sums are added in the same order in every batch.
  const StreamedDevice device;
  for (const DType dtype : kDtypes) {
    for (const auto& [N, K] : kSizes) {
      const StreamedPlan one = plan_streamed({dtype, 1, N, K}, device);
      for (const int64_t M : {2, 8, 9, 16, 17, 32, 33, 64}) {
        const StreamedShape shape = {dtype, M, N, K};
        const StreamedPlan plan = plan_streamed(shape, device);
        EXPECT_EQ(plan.split, one.split) << name_of(shape, plan);
        const StreamedShape gated = {dtype, M, N, K, true};
        if (N % 2 != 0) continue;
        EXPECT_EQ(plan_streamed(gated, device).split, one.split) << N << " " << K;
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
