#include <gtest/gtest.h>

#include "halley/cuda/ablation/ablation.h"
#include "halley/cuda/ablation/time_ablation.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

class TimeAblation : public HopperTest {};

TEST_F(TimeAblation, TimesEveryVariant) {
  const std::vector<AblationTime> times =
      time_ablation(context_, {.shapes = {{520, 1000}}, .rows = {16, 200}});
  ASSERT_EQ(times.size(), 2 * ablation_variants().size());
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].variant, ablation_variants()[i % ablation_variants().size()].name);
    EXPECT_EQ(times[i].M, i < ablation_variants().size() ? 16 : 200);
    EXPECT_GT(times[i].microseconds, times[i].floor_microseconds);
    EXPECT_EQ(times[i].ratio,
              times[i].microseconds / times[i - i % ablation_variants().size()].microseconds);
  }
}

}  // namespace
}  // namespace halley::cuda
