#include <algorithm>

#include <gtest/gtest.h>

#include "halley/cuda/mixed_gemm/time_mixed_gemm.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

using TimeMixedGemm = HopperTest;

TEST_F(TimeMixedGemm, TimesEachKindWithAndWithoutEarlyStarts) {
  const auto times = time_mixed_gemm(context_, {.gemm = {.shapes = {{256, 512}}, .rows = {1, 32}}});
  ASSERT_EQ(times.size(), 8U);
  for (const GemmTime& time : times) {
    EXPECT_TRUE(time.is_chosen);
    EXPECT_GT(time.time.microseconds, 0);
    EXPECT_GT(time.time.early_microseconds.value_or(0), 0);
    EXPECT_GT(time.floor_microseconds, 0);
  }
}

TEST_F(TimeMixedGemm, TimesAllPlansTheChosenOneAmongThem) {
  const auto times = time_mixed_gemm(
      context_, {.gemm = {.shapes = {{256, 512}}, .rows = {16}, .has_all_plans = true},
                 .kinds = {MixedKind::kU4F16}});
  EXPECT_GT(times.size(), 1U);
  EXPECT_TRUE(std::ranges::any_of(times, &GemmTime::is_chosen));
  for (const GemmTime& time : times) EXPECT_GT(time.time.microseconds, 0) << time.kernel;
}

}  // namespace
}  // namespace halley::cuda
