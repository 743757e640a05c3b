#include <vector>

#include <gtest/gtest.h>

#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/tune/tune.h"

namespace halley::cuda {
namespace {

class TuneGemms : public HopperTest {};

/// For every kernel: plans of the rows that it takes, which the kernel's planner can run.
TEST_F(TuneGemms, MeasuresPlansThatCanRun) {
  const CudaDeviceInfo device = use_cuda_device(0);
  for (const TunedKernel& kernel : tuned_kernels()) {
    const TunedGemm gemm = tuned_gemm_of(kernel, 512, 1024, 128);
    std::vector<int64_t> shown;
    const std::vector<TunedPlan> plans =
        tune_gemms(device, {&gemm, 1}, {4, 16, 64},
                   [&](const TunedPlan& plan) { shown.push_back(plan.rows); });
    ASSERT_GE(plans.size(), 2U) << kernel.name;
    ASSERT_EQ(shown.size(), plans.size());
    for (size_t i = 0; i < plans.size(); ++i) {
      EXPECT_EQ(plans[i].gemm, gemm);
      EXPECT_EQ(plans[i].rows, shown[i]);
      EXPECT_GT(plans[i].microseconds, 0) << kernel.name;
      EXPECT_LT(plans[i].microseconds, 1000) << kernel.name;
    }
    EXPECT_NO_THROW(check_tuned_plans({device.name, device.num_sms, plans}, device, "measured"));
  }
}

}  // namespace
}  // namespace halley::cuda
