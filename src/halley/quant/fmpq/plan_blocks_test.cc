#include "halley/quant/fmpq/plan_blocks.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/quant/fmpq/testing/synthetic_stats.h"

namespace halley {
namespace {

std::vector<float> equal_importance(int64_t K) {
  return std::vector<float>(static_cast<size_t>(K), 1.0f);
}

/// Every 100th channel from 7 on.
std::vector<int32_t> spread_outliers(int64_t K) {
  std::vector<int32_t> outliers;
  for (int32_t k = 7; k < K; k += 100) outliers.push_back(k);
  return outliers;
}

void expect_permutation(const std::vector<int32_t>& perm, int64_t K) {
  std::vector<int32_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  ASSERT_EQ(static_cast<int64_t>(sorted.size()), K);
  for (size_t k = 0; k < sorted.size(); ++k) EXPECT_EQ(sorted[k], static_cast<int32_t>(k));
}

TEST(PlanBlocks, GathersAllOutliersInTheFirstBlocks) {
  for (const int64_t K : {100, 128, 200, 512, 1408, 2000}) {
    const auto outliers = spread_outliers(K);
    const InputStats stats = synthetic_stats(K, 16, outliers, 50.0f, static_cast<uint32_t>(K));
    const BlockPlan plan = plan_blocks(stats, equal_importance(K));
    expect_permutation(plan.input_perm, K);
    EXPECT_EQ(plan.num_outliers, static_cast<int64_t>(outliers.size())) << K;
    EXPECT_EQ(plan.num_s8_blocks, 1) << K;
    EXPECT_EQ(plan.num_s8_inputs, std::min<int64_t>(K, 128)) << K;
    for (const int32_t outlier : outliers) {
      const auto found = std::find(plan.input_perm.begin(), plan.input_perm.end(), outlier);
      EXPECT_LT(found - plan.input_perm.begin(), plan.num_s8_inputs) << K << " " << outlier;
    }
  }
}

TEST(PlanBlocks, SortsBlocksOf4BitsByMagnitude) {
  const InputStats stats = synthetic_stats(700, 16, spread_outliers(700), 30.0f, 2);
  const BlockPlan plan = plan_blocks(stats, equal_importance(700));
  const auto magnitude = [&](int32_t k) { return stats.abs_max[static_cast<size_t>(k)]; };
  EXPECT_TRUE(std::is_sorted(plan.input_perm.begin() + plan.num_s8_inputs, plan.input_perm.end(),
                             [&](int32_t a, int32_t b) { return magnitude(a) > magnitude(b); }));
}

TEST(PlanBlocks, KeepsTheShareOf8Bits) {
  std::vector<int32_t> outliers;
  for (int32_t k = 0; k < 700; ++k) outliers.push_back(2 * k);
  const InputStats stats = synthetic_stats(2048, 8, outliers, 40.0f, 3);
  const std::vector<float> importance = equal_importance(2048);
  const BlockPlan plan = plan_blocks(stats, importance);
  EXPECT_EQ(plan.num_outliers, 700);
  EXPECT_EQ(plan.num_s8_blocks, 4);
  EXPECT_EQ(plan.num_blocks, 16);  // a quarter of them has 8 bits
  EXPECT_EQ(plan.num_s8_inputs, 512);
  EXPECT_EQ(plan_blocks(stats, importance, {.s8_share_max = 1}).num_s8_blocks, 6);
  EXPECT_EQ(plan_blocks(stats, importance, {.s8_share_max = 0.2}).num_s8_blocks, 3);
  EXPECT_EQ(plan_blocks(stats, importance, {.s8_share_max = 0}).num_s8_blocks, 1);
}

TEST(PlanBlocks, NeedsNo8BitsWithoutOutliers) {
  const BlockPlan plan = plan_blocks(synthetic_stats(512, 64, {}, 1, 4), equal_importance(512));
  EXPECT_EQ(plan.num_outliers, 0);
  EXPECT_EQ(plan.num_s8_blocks, 0);
  EXPECT_EQ(plan.num_s8_inputs, 0);
  InputStats silent = synthetic_stats(300, 2, {}, 0, 5);
  std::fill(silent.abs_max.begin(), silent.abs_max.end(), 0.0f);
  std::fill(silent.rows.begin(), silent.rows.end(), 0.0f);
  EXPECT_EQ(plan_blocks(silent, equal_importance(300)).num_s8_blocks, 0);
  EXPECT_EQ(plan_blocks(silent, equal_importance(300)).error, 0);
}

TEST(PlanBlocks, PrefersTheOutliersThatWeightsListenTo) {
  std::vector<int32_t> outliers;
  for (int32_t k = 0; k < 200; ++k) outliers.push_back(2 * k);
  const InputStats stats = synthetic_stats(512, 8, outliers, 40.0f, 6);
  std::vector<float> importance = equal_importance(512);
  for (size_t k = 0; k < 256; k += 2) importance[k] = 100;  // of half of the outliers
  const BlockPlan plan = plan_blocks(stats, importance);
  ASSERT_EQ(plan.num_s8_blocks, 1);
  for (int64_t k = 0; k < 128; ++k) EXPECT_LT(plan.input_perm[static_cast<size_t>(k)], 256) << k;
}

TEST(PlanBlocks, LosesFarLessThanTheNaturalOrder) {
  const InputStats stats = synthetic_stats(1024, 32, spread_outliers(1024), 50.0f, 7);
  const std::vector<float> importance = equal_importance(1024);
  const double ordered = plan_blocks(stats, importance).error;
  // The same with no block of 8 bits: all in one block of 4.
  const double all_s4 = plan_blocks(stats, importance, {.error_target = 1}).error;
  EXPECT_GT(ordered, 0);
  EXPECT_LT(ordered, all_s4 / 10);
}

TEST(PlanBlocks, AddsBlocksUntilTheErrorIsSmallEnough) {
  const InputStats stats = synthetic_stats(1024, 32, spread_outliers(1024), 20.0f, 8);
  const std::vector<float> importance = equal_importance(1024);
  double last_error = 1;
  int64_t last_blocks = 0;
  for (const double target : {0.5, 0.01, 1e-3, 1e-9}) {
    const BlockPlan plan =
        plan_blocks(stats, importance, {.s8_share_max = 1, .error_target = target});
    EXPECT_LE(plan.error, last_error);
    EXPECT_GE(plan.num_s8_blocks, last_blocks);
    EXPECT_TRUE(plan.error <= target || plan.num_s8_blocks == 8) << plan.error;
    last_error = plan.error;
    last_blocks = plan.num_s8_blocks;
  }
  EXPECT_EQ(last_blocks, 8);
  const BlockPlan bounded = plan_blocks(stats, importance, {.error_target = 1e-9});
  EXPECT_EQ(bounded.num_s8_blocks, 2);
}

TEST(PlanBlocks, IsTheSameEveryTime) {
  InputStats stats = synthetic_stats(640, 4, spread_outliers(640), 10.0f, 9);
  std::fill_n(stats.abs_max.begin() + 100, 300, 2.0f);  // equals keep their order
  const BlockPlan plan = plan_blocks(stats, equal_importance(640));
  EXPECT_EQ(plan_blocks(stats, equal_importance(640)).input_perm, plan.input_perm);
  std::vector<int32_t> equals;
  for (const int32_t k : plan.input_perm) {
    if (k >= 100 && k < 400) equals.push_back(k);
  }
  EXPECT_TRUE(std::is_sorted(equals.begin(), equals.end()));
}

TEST(ColumnNorms, AreOfAllWeightsTogether) {
  const std::vector<float> a = {3, 0, 0, 4}, b = {4, 5};
  const std::vector<ConstMatrix> weights = {f32_matrix(a.data(), 2, 2), f32_matrix(b.data(), 1, 2)};
  EXPECT_EQ(column_norms(weights), (std::vector<float>{5, std::sqrt(41.0f)}));
}

TEST(S4Work, WeighsLayersByTheirMultiplications) {
  S4Work work;
  EXPECT_EQ(work.share(), 0);
  work.add(100, 256, 128);
  work.add(300, 512, 0);
  EXPECT_DOUBLE_EQ(work.share(), (12800 + 153600) / (25600.0 + 153600));
}

}  // namespace
}  // namespace halley
