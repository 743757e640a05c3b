#include <vector>

#include <gtest/gtest.h>

#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/nested_gemm/time_nested_gemm.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

class TimeNestedGemm : public HopperTest {
 protected:
  CublasLtGemm lt_{context_, {}};
};

TEST_F(TimeNestedGemm, TimesBothPrecisions) {
  const TimeGemmOptions options = {.shapes = {{256, 512}}, .rows = {1, 128}};
  std::vector<GemmTime> times = time_nested_gemm(context_, options);
  ASSERT_EQ(times.size(), 2U);
  for (const GemmTime& time : times) EXPECT_GT(time.time.early_microseconds.value_or(0), 0);
  const auto low = time_nested_fp8(context_, lt_, options);
  times.insert(times.end(), low.begin(), low.end());
  int num_chosen = 0, num_peers = 0;
  for (const GemmTime& time : times) {
    EXPECT_GT(time.time.microseconds, 0) << time.kernel;
    EXPECT_GT(time.floor_microseconds, 0) << time.kernel;
    num_chosen += time.is_chosen ? 1 : 0;
    num_peers += time.kernel == "gemm_fp8_tensor_cublaslt" ? 1 : 0;
  }
  EXPECT_EQ(num_chosen, 4);
  EXPECT_EQ(num_peers, 2);
}

TEST_F(TimeNestedGemm, TimesAllPlansTheChosenOneAmongThem) {
  const auto times =
      time_nested_gemm(context_, {.shapes = {{512, 1024}}, .rows = {16}, .has_all_plans = true});
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
