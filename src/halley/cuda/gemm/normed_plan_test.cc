// Plans of products behind a norm: every output once, every input once, and what fits.
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/cuda/gemm/normed_gemm.h"

namespace halley::cuda {
namespace {

constexpr StreamedDevice kH200 = {132, 232448};

StreamedShape shape_of(int64_t N, int64_t K, bool is_gated) {
  return {.dtype = DType::kF16, .M = 1, .N = N, .K = K, .is_gated = is_gated};
}

TEST(NormedPlan, HasEveryOutputAndEveryInput) {
  for (const StreamedDevice& device : {kH200, StreamedDevice{7, 120000}}) {
    for (const StreamedShape& shape :
         {shape_of(64, 64, false), shape_of(6144, 4096, false), shape_of(28672, 4096, true),
          shape_of(1001, 704, false), shape_of(34944, 64, true), shape_of(33856, 128, false)}) {
      SCOPED_TRACE(str(device.num_sms, " SMs, ", shape.N, " ", shape.K));
      const std::optional<NormedPlan> plan = plan_normed(shape, true, device);
      ASSERT_TRUE(plan);
      const int64_t places = shape.is_gated ? shape.N / 2 : shape.N;
      EXPECT_EQ(plan->is_gated, shape.is_gated);
      EXPECT_TRUE(plan->strips == 1 || plan->strips == 2 || plan->strips == 4) << plan->strips;
      EXPECT_TRUE(plan->strip_rows % 8 == 0 && plan->strip_rows <= 64) << plan->strip_rows;
      EXPECT_GE(int64_t{plan->num_tiles} * plan->tile_places(), places);
      EXPECT_LT(int64_t{plan->num_tiles - 1} * plan->tile_places(), places);
      EXPECT_LE(plan->num_blocks, device.num_sms);
      EXPECT_EQ(plan->num_chunks * 64, shape.K);
      EXPECT_EQ(plan->stage_chunks * plan->strip_rows * kStreamedChunkBytes, plan->stage_bytes);
      EXPECT_GE(plan->num_stages, 2);
      EXPECT_TRUE(plan->early_stages >= 1 && plan->early_stages <= plan->num_stages);
      EXPECT_LE(plan->num_bytes, device.shared_bytes_max);
      EXPECT_LT(plan->inputs + shape.K * 2, plan->scratch);
    }
  }
}

TEST(NormedPlan, KeepsNearlyAllSmsBusyWithLlama3) {
  for (const StreamedShape& shape : {shape_of(28672, 4096, true), shape_of(6144, 4096, false)}) {
    const std::optional<NormedPlan> plan = plan_normed(shape, true, kH200);
    ASSERT_TRUE(plan);
    EXPECT_GE(plan->num_blocks, kH200.num_sms * 9 / 10);
    EXPECT_GE(plan->num_stages, 4);
    // Some of the ring is left for when the row is there.
    EXPECT_LT(plan->early_stages, plan->num_stages);
  }
}

TEST(NormedPlan, RejectsOtherShapes) {
  StreamedShape two_rows = shape_of(64, 64, false);
  two_rows.M = 2;
  EXPECT_FALSE(plan_normed(two_rows, true, kH200));
  EXPECT_FALSE(plan_normed(shape_of(64, 96, false), true, kH200));      // rows of 192 bytes
  EXPECT_FALSE(plan_normed(shape_of(64, 8256, false), true, kH200));    // columns
  EXPECT_FALSE(plan_normed(shape_of(4096, 4096, false), true, kH200));  // two blocks share inputs
}

}  // namespace
}  // namespace halley::cuda
