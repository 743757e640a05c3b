#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/cuda/gemv/time_gemv.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

using TimeGemv = GpuTest;

TEST_F(TimeGemv, TimesFewRowsWithAndWithoutEarlyStarts) {
  for (const TimedGemvProblem& problem : timed_gemv_problems()) {
    const auto times = time_gemv(context_, problem, {.shapes = {{256, 512}}, .rows = {1, 8, 64}});
    ASSERT_EQ(times.size(), 2U) << problem.name;  // not of 64 rows
    for (const GemmTime& time : times) {
      EXPECT_EQ(time.problem, problem.name);
      EXPECT_GT(time.time.microseconds, 0) << time.kernel;
      EXPECT_GT(time.time.early_microseconds.value_or(0), 0) << time.kernel;
      EXPECT_GT(time.floor_microseconds, 0) << time.kernel;
    }
  }
  EXPECT_THAT(
      [&] {
        time_gemv(context_, timed_gemv_problems()[0], {.shapes = {{16, 4}}, .rows = {1}});
      },
      ThrowsMessage<UnsupportedError>(
          HasSubstr("u8_f16: expected a weight that products of a few rows take, got 16 x 4: 4 "
                    "inputs are no multiple of 8")));
}

}  // namespace
}  // namespace halley::cuda
