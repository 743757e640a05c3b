#include "halley/cuda/mixed_gemm/mixed_settings.h"

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/tuning/tuned_plans.h"

namespace halley::cuda {
namespace {

constexpr MixedDevice kDevice = {};

MixedShape shape_of(MixedKind kind, int64_t M) {
  return {.kind = kind, .M = M, .N = 6144, .K = 4096};
}

TEST(MixedSettings, GiveThePlanThatTheyAreOf) {
  for (const MixedKind kind : kMixedKinds) {
    for (const int64_t M : {1, 8, 50, 700}) {
      const MixedShape shape = shape_of(kind, M);
      for (const MixedTiling& tiling : mixed_tilings(shape, kDevice)) {
        const MixedPlan plan = tiled_mixed_plan(shape, kDevice, tiling);
        const auto read = mixed_plan_of(shape, kDevice, settings_of(plan));
        ASSERT_TRUE(read) << plan;
        EXPECT_EQ(str(*read), str(plan));
      }
      const auto small = mixed_plan_of(shape, kDevice, {{"is_small_m", 1}});
      EXPECT_EQ(small.has_value(), can_be_narrow(shape));
      if (small) {
        EXPECT_TRUE(small->is_narrow);
      }
    }
  }
}

TEST(MixedSettings, OfWhatIsNotCompiledGiveNoPlan) {
  const MixedShape shape = shape_of(MixedKind::kU4S8, 64);
  const PlanSettings usual = {
      {"tokens", 64}, {"outputs", 128}, {"cluster_size", 2}, {"ctas_per_sm", 1}};
  ASSERT_TRUE(mixed_plan_of(shape, kDevice, usual));
  const auto with = [&](const char* name, int64_t value) {
    PlanSettings settings = usual;
    settings[name] = value;
    return mixed_plan_of(shape, kDevice, settings).has_value();
  };
  EXPECT_FALSE(with("tokens", 40));
  EXPECT_FALSE(with("outputs", 64));
  EXPECT_FALSE(with("cluster_size", 0));
  EXPECT_FALSE(with("cluster_size", 1000));
  EXPECT_FALSE(with("ctas_per_sm", 3));
  EXPECT_FALSE(with("is_stream_k", 1)) << "with clusters";
  EXPECT_FALSE(with("is_small_m", 1));
  EXPECT_FALSE(with("colour", 1));
  EXPECT_FALSE(mixed_plan_of(shape, kDevice, {}));
  // More CTAs of a cluster than the weight has k-blocks.
  MixedShape narrow = shape;
  narrow.K = 128;
  EXPECT_FALSE(mixed_plan_of(narrow, kDevice, usual));
}

TEST(MixedSettings, GemmsAreReadAsTheyAreNamed) {
  for (const MixedKind kind : kMixedKinds) {
    const auto read = mixed_shape_of(tuned_gemm_of(shape_of(kind, 1)), 16);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->kind, kind);
    EXPECT_EQ(read->M, 16);
    EXPECT_EQ(read->group_size, 128);
  }
  TunedGemm gemm = tuned_gemm_of(shape_of(MixedKind::kU4S8, 1));
  gemm.group_size = 100;
  EXPECT_FALSE(mixed_shape_of(gemm, 1));
  gemm.group_size = 64;
  gemm.kernel = "w4ax";
  EXPECT_FALSE(mixed_shape_of(gemm, 1));
}

TEST(MixedSettings, OfTheTableDecide) {
  MixedShape shape = shape_of(MixedKind::kU4F16, 60);
  shape.N = 6272;  // no table of the program has it
  const MixedPlan by_estimate = plan_mixed_gemm(shape, kDevice);
  for (const MixedTiling& tiling : mixed_tilings(shape, kDevice)) {
    const MixedPlan plan = tiled_mixed_plan(shape, kDevice, tiling);
    set_tuned_plans({"a GPU",
                     kDevice.num_sms,
                     {{.gemm = tuned_gemm_of(shape),
                       .rows = 64,
                       .settings = settings_of(plan),
                       .microseconds = 1}}});
    EXPECT_EQ(settings_of(plan_mixed_gemm(shape, kDevice)), settings_of(plan));
  }
  set_tuned_plans({});
  EXPECT_EQ(settings_of(plan_mixed_gemm(shape, kDevice)), settings_of(by_estimate));
}

}  // namespace
}  // namespace halley::cuda
