#include "halley/cuda/runtime/memory_plan.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr size_t kGib = size_t{1} << 30;

GpuMemoryDemand demand() {
  return {.total_bytes = 80 * kGib,
          .free_bytes = 79 * kGib,
          .utilization = 0.9,
          .weight_bytes = 16 * kGib,
          .workspace_bytes = kGib,
          .kv_page_bytes = kGib / 512,
          .num_pages_min = 512};
}

TEST(MemoryPlanTest, TheCacheGetsWhatIsLeft) {
  const GpuMemoryPlan plan = plan_gpu_memory(demand());
  EXPECT_EQ(plan.budget_bytes, 72 * kGib);
  EXPECT_EQ(plan.num_pages, 55 * 512);
  EXPECT_EQ(plan.kv_bytes, 55 * kGib);
}

TEST(MemoryPlanTest, NoMorePagesThanCanBeUsed) {
  GpuMemoryDemand small = demand();
  small.num_pages_max = 600;
  EXPECT_EQ(plan_gpu_memory(small).num_pages, 600);
}

TEST(MemoryPlanTest, RejectsWhatDoesNotFitAndShowsTheSum) {
  GpuMemoryDemand large = demand();
  large.weight_bytes = 71 * kGib;
  EXPECT_THAT([&] { plan_gpu_memory(large); },
              ThrowsMessage<DeviceError>(HasSubstr(
                  "GPU memory: expected room for weights (71.00 GiB), workspace (1.00 GiB) and the "
                  "KV cache of one sequence (1.00 GiB), got 72.00 GiB. Lower --max-model-len")));
  large.weight_bytes = 70 * kGib;
  EXPECT_EQ(plan_gpu_memory(large).num_pages, 512);
  large.weight_bytes = std::numeric_limits<size_t>::max();
  EXPECT_THAT([&] { plan_gpu_memory(large); },
              ThrowsMessage<DeviceError>(HasSubstr("expected room for weights")));
}

TEST(MemoryPlanTest, RejectsMemoryThatOthersUse) {
  GpuMemoryDemand shared = demand();
  shared.free_bytes = 40 * kGib;
  EXPECT_THAT([&] { plan_gpu_memory(shared); },
              ThrowsMessage<DeviceError>(HasSubstr(
                  "GPU memory: expected 72.00 GiB free (0.9 of 80.00 GiB), got 40.00 GiB. Lower "
                  "--gpu-memory-utilization, or stop other programs")));
}

TEST(MemoryPlanTest, RejectsAShareThatIsNone) {
  for (const double utilization : {0.0, -1.0, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    GpuMemoryDemand wrong = demand();
    wrong.utilization = utilization;
    EXPECT_THAT([&] { plan_gpu_memory(wrong); },
                ThrowsMessage<InputError>(
                    HasSubstr("--gpu-memory-utilization: expected above 0, at most 1, got ")));
  }
}

}  // namespace
}  // namespace halley
