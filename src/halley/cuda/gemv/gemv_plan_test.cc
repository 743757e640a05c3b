#include "halley/cuda/gemv/gemv_plan.h"

#include <gtest/gtest.h>

#include "halley/cuda/gemv/gemv.h"

namespace halley::cuda {
namespace {

GemvShape shape_of(int bits, int64_t N, int64_t K, int64_t group_size = 0) {
  return {.inputs = GemvInputs::kNumbers,
          .bits = bits,
          .N = N,
          .K = K,
          .group_size = group_size == 0 ? K : group_size};
}

TEST(GemvPlan, HasAKernelForEachShape) {
  for (const int bits : {8, 3, 2, 1}) {
    for (const int64_t N : {1, 16, 1024, 4096, 14336, 57344, 128256}) {
      const GemvShape shape = shape_of(bits, N, 4096);
      EXPECT_TRUE(has_gemv_kernel(shape, plan_gemv(shape, 132))) << bits << " " << N;
    }
  }
}

TEST(GemvPlan, GivesBlocksMoreOutputsWhereThereAreMany) {
  EXPECT_EQ(plan_gemv(shape_of(8, 1024, 4096), 132).tiles, 1);
  EXPECT_EQ(plan_gemv(shape_of(8, 57344, 8192), 132).tiles, 2);
  EXPECT_EQ(plan_gemv(shape_of(2, 57344, 8192), 132).tiles, 4);
}

GemvShape few_bits(GemvInputs inputs, int bits, int64_t N, int64_t K) {
  return {.inputs = inputs, .bits = bits, .N = N, .K = K, .group_size = 128};
}

TEST(GemvPlanePlan, FitsInSharedMemory) {
  const GemvDevice device;
  for (const GemvInputs inputs : {GemvInputs::kNumbers, GemvInputs::kS8}) {
    for (const int bits : {2, 1}) {
      for (const int64_t rows : {1, 2}) {
        for (const auto& [N, K] : {std::pair<int64_t, int64_t>{1, 16},
                                   {4096, 4096},
                                   {8192, 28672},
                                   {57344, 8192},
                                   {128256, 16384}}) {
          const GemvShape shape = few_bits(inputs, bits, N, K);
          const GemvPlanePlan plan = plan_gemv_planes(shape, rows, device);
          if (rows == 2 && K > 16384) continue;  // see SaysWhatItDoesNotTake
          const bool is_small = N * K <= 4096 * 4096;
          if (inputs == GemvInputs::kS8 && is_small) {
            EXPECT_EQ(plan.blocks, 0);
            continue;
          }
          ASSERT_GT(plan.blocks, 0) << bits << " bits, " << N << " x " << K;
          EXPECT_LE(plan.num_bytes, device.shared_bytes_max);
          EXPECT_LE(plan.tiles, gemv_plane_tiles(static_cast<int>(rows)));
          // Sums that are kept are those of whole parts of a block's tiles.
          const int64_t block_tiles = (shape.num_tiles() + plan.blocks - 1) / plan.blocks;
          EXPECT_TRUE(plan.span % plan.tiles == 0 || plan.span == block_tiles) << plan.span;
        }
      }
    }
  }
}

TEST(GemvPlanePlan, KeepsThePlanesThatAreNeededAgain) {
  const GemvDevice device;
  const auto kept = [&](int64_t N, int64_t K) {
    return plan_gemv_planes(few_bits(GemvInputs::kNumbers, 1, N, K), 1, device).kept;
  };
  EXPECT_EQ(kept(57344, 8192), 4);
  EXPECT_EQ(kept(57344, 16384), 8);
  EXPECT_EQ(kept(8192, 28672), kGemvPlaneBatch);  // all tiles of a block at a time
}

TEST(GemvPlanePlan, SaysWhatItDoesNotTake) {
  const GemvDevice device;
  const auto blocks = [&](const GemvShape& shape, int64_t rows) {
    return plan_gemv_planes(shape, rows, device).blocks;
  };
  const GemvShape shape = few_bits(GemvInputs::kNumbers, 1, 64, 1024);
  EXPECT_EQ(blocks(shape, 1), 4);
  EXPECT_EQ(blocks(shape, 3), 0);
  EXPECT_EQ(blocks(few_bits(GemvInputs::kNumbers, 3, 64, 1024), 1), 0);
  EXPECT_EQ(blocks(shape_of(1, 64, 1024, 64), 1), 0);
  EXPECT_EQ(blocks(few_bits(GemvInputs::kNumbers, 1, 64, 1 << 20), 1), 0);
  EXPECT_EQ(blocks(few_bits(GemvInputs::kNumbers, 2, 8192, 28672), 2), 0);
}

TEST(GemvShape, CountsBytes) {
  const GemvShape shape = shape_of(2, 17, 300, 64);
  EXPECT_EQ(shape.num_tiles(), 2);
  EXPECT_EQ(shape.num_pieces(), 3);
  EXPECT_EQ(shape.code_bytes(), size_t{2 * 3 * 16 * 128 / 4});
  EXPECT_EQ(shape.num_groups(), 5);
  EXPECT_EQ(shape.groups_of_entry(), 2);
  EXPECT_EQ(shape.num_entries(), 3);
  EXPECT_EQ(shape.group_bytes(), size_t{2 * 3 * 16 * 2 * 2});
  EXPECT_EQ(shape_of(8, 17, 300).group_bytes(), size_t{2 * 16 * 2});
}

TEST(GemvShape, SaysWhatIsNotThere) {
  EXPECT_EQ(why_not_gemv(shape_of(8, 5, 264, 128)), "");
  EXPECT_EQ(why_not_gemv(shape_of(4, 5, 256)),
            "no kernel for codes of 4 bits and these activations");
  EXPECT_EQ(why_not_gemv(shape_of(8, 5, 260)), "260 inputs are no multiple of 8");
  EXPECT_EQ(why_not_gemv(shape_of(8, 5, 256, 96)),
            "groups of 96 inputs, no power of two from 32 on");
  EXPECT_EQ(why_not_gemv(shape_of(8, 5, 256, 16)),
            "groups of 16 inputs, no power of two from 32 on");
  EXPECT_EQ(why_not_gemv(shape_of(8, 5, int64_t{1} << 22)), "more than 2097152 inputs");
}

TEST(GemvShape, TakesZerosOfHalves) {
  const std::vector<float> fine = {0, 0.5f, 128, 256}, negative = {-1}, third = {0.25f};
  EXPECT_TRUE(has_gemv_zeros(fine));
  EXPECT_FALSE(has_gemv_zeros(negative));
  EXPECT_FALSE(has_gemv_zeros(third));
}

}  // namespace
}  // namespace halley::cuda
