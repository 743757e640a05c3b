#include <vector>

#include <gtest/gtest.h>

#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/time_w4ax_gemm.h"

namespace halley::cuda {
namespace {

using TimeW4axGemm = HopperTest;

TEST_F(TimeW4axGemm, TimesWithAndWithoutEarlyStarts) {
  const auto times = time_w4ax_gemm(context_, {.shapes = {{256, 512}}, .rows = {1, 96}});
  ASSERT_EQ(times.size(), 2U);
  for (const GemmTime& time : times) {
    EXPECT_TRUE(time.is_chosen);
    EXPECT_GT(time.time.microseconds, 0);
    EXPECT_GT(time.time.early_microseconds.value_or(0), 0);
    EXPECT_GT(time.floor_microseconds, 0);
  }
}

TEST_F(TimeW4axGemm, TimesAllPlansTheChosenOneAmongThem) {
  const auto times =
      time_w4ax_gemm(context_, {.shapes = {{512, 1024}}, .rows = {16}, .has_all_plans = true});
  EXPECT_GT(times.size(), 1U);
  int num_chosen = 0;
  for (const GemmTime& time : times) {
    EXPECT_GT(time.time.microseconds, 0) << time.kernel;
    num_chosen += time.is_chosen ? 1 : 0;
  }
  EXPECT_EQ(num_chosen, 1);
}

}  // namespace
}  // namespace halley::cuda
