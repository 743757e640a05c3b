#include "halley/cuda/tuning/tuned_plans.h"

#include <gtest/gtest.h>

namespace halley::cuda {
namespace {

/// Schedules depend on the number of SMs, so that other numbers find nothing.
TEST(TunedPlans, AreThoseOfTheProgramForAsManySms) {
  const TunedGemm layer = {.kernel = "u4_s8", .N = 28672, .K = 4096, .group_size = 128};
  ASSERT_NE(find_tuned_plan(132, layer, 16), nullptr);
  EXPECT_EQ(find_tuned_plan(114, layer, 16), nullptr);
  EXPECT_NE(find_tuned_plan(132, {.kernel = "w4ax", .N = 28672, .K = 4096}, 64), nullptr);
  EXPECT_NE(find_tuned_plan(132, {.kernel = "nested_f16", .N = 28672, .K = 4096}, 64), nullptr);
}

TEST(TunedPlans, ThatAreSetGoFirst) {
  const TunedGemm layer = {.kernel = "u4_s8", .N = 28672, .K = 4096, .group_size = 128};
  const TunedPlan* before = find_tuned_plan(132, layer, 16);
  ASSERT_NE(before, nullptr);
  set_tuned_plans({"a GPU",
                   132,
                   {{.gemm = layer, .rows = 16, .settings = {{"tokens", 7}}, .microseconds = 1}}});
  EXPECT_EQ(find_tuned_plan(132, layer, 16)->settings, (PlanSettings{{"tokens", 7}}));
  // The program's plans serve what it does not have.
  EXPECT_NE(find_tuned_plan(132, layer, 64), nullptr);
  set_tuned_plans({});
  EXPECT_EQ(find_tuned_plan(132, layer, 16), before);
}

}  // namespace
}  // namespace halley::cuda
