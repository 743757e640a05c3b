// Plans of products of one row: every place once, and what fits.
#include "halley/cuda/row_gemm/row_plan.h"

#include <gtest/gtest.h>

#include "halley/base/str.h"

namespace halley::cuda {
namespace {

TEST(RowPlan, FitsAndHasEveryPlace) {
  for (const MixedDevice& device : {MixedDevice{}, MixedDevice{7, 120000}}) {
    for (const RowKind kind : {RowKind::kU4S8, RowKind::kU4F16, RowKind::kW4ax}) {
      for (const RowShape& shape :
           {RowShape{kind, 6144, 4096, 128, false, true}, RowShape{kind, 4096, 4096, 128},
            RowShape{kind, 28672, 4096, 128, true, true}, RowShape{kind, 4096, 14336, 128},
            RowShape{kind, 1, 8, 32}, RowShape{kind, 96, 136, 64, true},
            RowShape{kind, 57344, 8192, 32, true, true}}) {
        SCOPED_TRACE(str(kind, " ", shape.N, " x ", shape.K));
        const std::optional<RowPlan> plan = plan_row(shape, device);
        ASSERT_TRUE(plan);
        EXPECT_GE(int64_t{plan->num_places} * plan->num_segments * 16, shape.N);
        EXPECT_GE(int64_t{plan->num_chunks} * kChunkInputs, shape.K);
        EXPECT_TRUE(plan->places >= 1 && plan->places * plan->num_segments <= kRowStrips);
        EXPECT_LE(plan->span * plan->num_segments * 16, kRowSums);
        EXPECT_GE(plan->num_stages, 1);
        EXPECT_LE(plan->early_stages, plan->num_stages);
        EXPECT_LE(plan->num_bytes, device.shared_bytes_max);
        EXPECT_EQ(plan->stage_bytes % 16, 0);
        EXPECT_EQ(plan->inputs % 16, 0);
        EXPECT_EQ(plan->numbers % 16, 0);
        EXPECT_EQ(plan->barriers % 8, 0);
      }
    }
  }
}

TEST(RowPlan, HasRoomForNumbersWhereInputsHaveAnOrder) {
  RowShape shape = {.kind = RowKind::kW4ax, .N = 4096, .K = 14336};
  const std::optional<RowPlan> plain = plan_row(shape, {});
  shape.has_input_perm = true;
  const std::optional<RowPlan> ordered = plan_row(shape, {});
  ASSERT_TRUE(plain && ordered);
  EXPECT_EQ(plain->scratch, plain->numbers);
  EXPECT_EQ(ordered->scratch - ordered->numbers, 14336 * 2);
  EXPECT_LE(ordered->num_bytes, MixedDevice{}.shared_bytes_max);
}

TEST(RowPlan, RejectsOtherShapes) {
  const RowKind kind = RowKind::kU4S8;
  EXPECT_FALSE(plan_row({kind, 64, 8200, 128, false, true}, {}));
  EXPECT_FALSE(plan_row({kind, 64, 16392}, {}));
  EXPECT_FALSE(plan_row({row_kind(MixedKind::kU4GroupS8), 64, 128}, {}));
  EXPECT_FALSE(plan_row({row_kind(MixedKind::kU8F16), 64, 128}, {}));
  EXPECT_FALSE(plan_row({kind, 64, 100}, {}));
  EXPECT_FALSE(plan_row({kind, 48, 128, 128, true}, {}));
}

}  // namespace
}  // namespace halley::cuda
