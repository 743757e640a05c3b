#include <iostream>

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

/// All tiles of two layers of Llama-3: what the constants of mixed_plan.cc are judged by.
TEST_F(TimeMixedGemm, ListsAllTilings) {
  const auto times = time_mixed_gemm(
      context_, {.gemm = {.shapes = {{4096, 4096}, {8192, 28672}}, .rows = {1, 16, 64, 256}},
                 .kinds = {MixedKind::kU4S8, MixedKind::kU4GroupS8, MixedKind::kU4F16,
                           MixedKind::kU8F16, MixedKind::kU8Bf16},
                 .has_all_tiles = true});
  for (const GemmTime& time : times) {
    EXPECT_GT(time.time.microseconds, 0) << time.problem << " " << time.kernel;
    const double early = time.time.early_microseconds.value_or(0);
    std::cout << (time.is_chosen ? "time * " : "time   ") << time.problem << " " << time.N << "x"
              << time.K << " M " << time.M << ": " << time.time.microseconds << " us, early "
              << early << ", floor " << time.floor_microseconds << ", ratio "
              << early / time.floor_microseconds << ", " << time.kernel << "\n";
  }
}

}  // namespace
}  // namespace halley::cuda
