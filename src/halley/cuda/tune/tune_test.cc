#include "halley/cuda/tune/tune.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/tuning/tuned_plans.h"

namespace halley::cuda {
namespace {

using testing::HasSubstr;

const CudaDeviceInfo kDevice = {
    .name = "NVIDIA H200", .compute_major = 9, .num_sms = 132, .shared_bytes_max = 232448};

std::string error_of(const TunedPlan& plan) {
  try {
    check_tuned_plans({"a GPU", 132, {plan}}, kDevice, "tuned.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(TunedKernels, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const TunedKernel& kernel : tuned_kernels()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    EXPECT_EQ(find_tuned_kernel(kernel.name), &kernel);
  }
  EXPECT_EQ(find_tuned_kernel("u3_s8"), nullptr);
}

/// Every plan that is part of the program can run, and each rewrites to itself.
TEST(TunedKernels, CanRunThePlansOfTheProgram) {
  for (const TuningTable& table : built_in_tuned_plans()) {
    EXPECT_NO_THROW(check_tuned_plans(table, kDevice, table.device()));
    EXPECT_EQ(TuningTable::parse(table.to_json(), "again").to_json(), table.to_json());
  }
}

TEST(TunedKernels, RejectPlansThatCannotRun) {
  const TunedPlan plan = {
      .gemm = {.kernel = "u4_s8", .N = 6144, .K = 4096, .group_size = 128},
      .rows = 64,
      .settings = {{"tokens", 64}, {"outputs", 128}, {"cluster_size", 2}, {"ctas_per_sm", 1}},
      .microseconds = 5};
  EXPECT_EQ(error_of(plan), "");
  TunedPlan other = plan;
  other.gemm.kernel = "u3_s8";
  EXPECT_THAT(error_of(other), HasSubstr("expected a kernel that halley tune measures, got"));
  other = plan;
  other.settings["tokens"] = 40;
  EXPECT_THAT(error_of(other), HasSubstr("tuned.json: u4_s8, N 6144, K 4096, 64 rows: expected"));
  other = plan;
  other.gemm.group_size = 100;
  EXPECT_NE(error_of(other), "");
}

TEST(TunedKernels, NameTheGemmsThatTheirPlannersLookUp) {
  const auto named = [](const char* kernel, int64_t group_size) {
    return tuned_gemm_of(*find_tuned_kernel(kernel), 6144, 4096, group_size);
  };
  // Scales of channels are stored in groups of 128 inputs.
  EXPECT_EQ(named("u4_s8", 0), (TunedGemm{"u4_s8", 6144, 4096, 128}));
  EXPECT_EQ(named("u4_group_s8", 64), (TunedGemm{"u4_group_s8", 6144, 4096, 64}));
  EXPECT_EQ(named("w4ax", 128), (TunedGemm{"w4ax", 6144, 4096, 0}));
}

}  // namespace
}  // namespace halley::cuda
