#include "halley/cli/gemm_summary.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley::cli {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::Optional;

constexpr double kTiny = 1e-12;
constexpr std::string_view kPeers[] = {"f16", "fp8"};
constexpr ProblemPeers kProblems[] = {{"u4", kPeers}, {"f16", {}}, {"not timed", kPeers}};

GemmTiming gemm(const char* problem, int64_t N, double time, std::optional<double> pdl) {
  return {.problem = problem,
          .N = N,
          .K = 64,
          .M = 1,
          .time = time,
          .pdl_time = pdl,
          .floor = static_cast<double>(N)};
}

GemmTiming by_cublaslt(const char* problem, int64_t N, double time, bool is_chosen) {
  GemmTiming result = gemm(problem, N, time, std::nullopt);
  result.is_cublaslt = true;
  result.is_chosen = is_chosen;
  return result;
}

/// GEMMs of two shapes, whose floors are 10 and 20.
std::vector<GemmTiming> gemms() {
  return {gemm("u4", 10, 20, 15),           gemm("u4", 20, 160, 60),
          gemm("f16", 10, 30, 25),          by_cublaslt("f16", 10, 40, false),
          by_cublaslt("f16", 20, 80, true), by_cublaslt("fp8", 10, 90, true),
          by_cublaslt("fp8", 20, 45, true)};
}

TEST(GemmSummary, MeansAreGeometricOverShapes) {
  const std::vector<GemmTiming> all = gemms();
  const std::vector<ProblemMean> means = means_of(all, kProblems);
  ASSERT_EQ(means.size(), 2U);
  EXPECT_EQ(means[0].problem, "u4");
  EXPECT_EQ(means[0].M, 1);
  EXPECT_EQ(means[0].num_shapes, 2);
  EXPECT_NEAR(means[0].over_floor, 4, kTiny);  // mean of 2 and 8
  EXPECT_THAT(means[0].pdl_over_floor, Optional(DoubleNear(std::sqrt(1.5 * 3), kTiny)));
  // The mean of 40 / 10 and 45 / 20: the best of both peers.
  EXPECT_THAT(means[0].peer_over_floor, Optional(DoubleNear(3, kTiny)));
  EXPECT_THAT(means[0].above_floor, DoubleEq(75));  // mean of 10 and 140
  EXPECT_THAT(means[0].pdl_above_floor, Optional(DoubleEq(22.5)));
}

TEST(GemmSummary, KernelsWithoutPdlCountWithTheirPlainTime) {
  const std::vector<GemmTiming> all = gemms();
  const std::vector<ProblemMean> means = means_of(all, kProblems);
  ASSERT_EQ(means.size(), 2U);
  EXPECT_EQ(means[1].problem, "f16");
  EXPECT_NEAR(means[1].over_floor, std::sqrt(3.0 * 4), kTiny);
  EXPECT_THAT(means[1].pdl_over_floor, Optional(DoubleNear(std::sqrt(2.5 * 4), kTiny)));
  EXPECT_EQ(means[1].peer_over_floor, std::nullopt);
  const std::vector<GemmTiming> alone = {by_cublaslt("f16", 10, 40, true)};
  const std::vector<ProblemMean> apart = means_of(alone, kProblems);
  ASSERT_EQ(apart.size(), 1U);
  EXPECT_EQ(apart[0].pdl_over_floor, std::nullopt);
  EXPECT_EQ(apart[0].pdl_above_floor, std::nullopt);
}

TEST(GemmSummary, PeersCountWhereAllShapesHaveOne) {
  std::vector<GemmTiming> all = gemms();
  all.push_back(gemm("u4", 30, 60, 60));
  EXPECT_EQ(means_of(all, kProblems)[0].peer_over_floor, std::nullopt);
}

TEST(GemmSummary, PdlOfPeersCountsWhereItIsFaster) {
  std::vector<GemmTiming> all = gemms();
  all[3].pdl_time = 44;  // 40 without
  EXPECT_THAT(means_of(all, kProblems)[0].peer_over_floor, Optional(DoubleNear(3, kTiny)));
  all[3].pdl_time = 10;
  EXPECT_THAT(means_of(all, kProblems)[0].peer_over_floor, Optional(DoubleNear(1.5, kTiny)));
}

TEST(GemmSummary, EachMHasItsMeanInAscendingOrder) {
  std::vector<GemmTiming> all = gemms();
  all[0].M = 16;
  const std::vector<ProblemMean> means = means_of(all, kProblems);
  ASSERT_EQ(means.size(), 3U);
  EXPECT_EQ(means[0].M, 1);
  EXPECT_NEAR(means[0].over_floor, 8, kTiny);
  EXPECT_EQ(means[1].M, 16);
  EXPECT_NEAR(means[1].over_floor, 2, kTiny);
}

TEST(GemmSummary, RatiosAreOfTheSameShapes) {
  constexpr ProblemRatio kRatios[] = {{"u4", "f16"}, {"u4", "fp8", true}, {"u4", "not timed"}};
  const std::vector<GemmTiming> all = gemms();
  const std::vector<RatioMean> ratios = ratios_of(all, kRatios);
  ASSERT_EQ(ratios.size(), 2U);
  EXPECT_EQ(ratios[0].name, "u4 / f16");
  EXPECT_EQ(ratios[0].num_shapes, 2);
  EXPECT_NEAR(ratios[0].ratio, std::sqrt(20.0 / 30 * 160 / 80), kTiny);
  EXPECT_THAT(ratios[0].pdl_ratio, Optional(DoubleNear(std::sqrt(15.0 / 25 * 60 / 80), kTiny)));
  EXPECT_EQ(ratios[1].name, "u4 / cuBLASLt fp8");
  EXPECT_NEAR(ratios[1].ratio, std::sqrt(20.0 / 90 * 160 / 45), kTiny);
  const std::vector<GemmTiming> first(all.begin(), all.begin() + 3);
  ASSERT_EQ(ratios_of(first, kRatios).size(), 1U);
  EXPECT_EQ(ratios_of(first, kRatios)[0].num_shapes, 1);
}

}  // namespace
}  // namespace halley::cli
