#include <gtest/gtest.h>

#include "halley/cuda/experts/time_experts.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

class TimeExpertsGpuTest : public GpuTest {
 protected:
  DeviceArena large_{size_t{1} << 30, "a test's workspace"};
  CudaContext large_context_{device_, stream_, large_};
  CublasLtGemm lt_{large_context_, {}};
};

TEST_F(TimeExpertsGpuTest, TimesAreOfWhatWasAsked) {
  const ExpertsShape small = {.name = "small",
                              .num_experts = 4,
                              .num_experts_per_token = 2,
                              .hidden_size = 256,
                              .width = 128};
  const auto times = time_experts(large_context_, lt_, {.shapes = {small}, .rows = {1, 64}});
  ASSERT_EQ(times.size(), 2u);
  for (const ExpertsTime& time : times) {
    EXPECT_EQ(time.shape, "small");
    EXPECT_GT(time.microseconds, 0);
    EXPECT_GT(time.routing_microseconds, 0);
    EXPECT_GT(time.sum_microseconds, 0);
  }
  EXPECT_EQ(times[0].num_touched, 2);
  EXPECT_EQ(times[1].num_touched, 4);
  // Two experts with 3 * 256 * 128 weights of 2 bytes.
  EXPECT_DOUBLE_EQ(times[0].floor_microseconds, 1e6 * (2.0 * 3 * 256 * 128 * 2 / 4.66e12));
}

TEST_F(TimeExpertsGpuTest, AllWeightsAreTimed) {
  const ExpertsShape small = {.name = "small",
                              .num_experts = 4,
                              .num_experts_per_token = 2,
                              .hidden_size = 256,
                              .width = 128};
  const std::vector<GroupedKind> weights = timed_experts_weights();
  const auto times =
      time_experts(large_context_, lt_, {.shapes = {small}, .weights = weights, .rows = {64}});
  ASSERT_EQ(times.size(), weights.size());
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].weights, weights[i]);
    EXPECT_GT(times[i].microseconds, 0) << name_of(weights[i]);
    EXPECT_GT(times[i].floor_microseconds, 0) << name_of(weights[i]);
  }
}

}  // namespace
}  // namespace halley::cuda
