#include "halley/models/all/gpu_tuning.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/cuda/tuning/tuned_plans.h"
#include "halley/cuda/tuning/tuning_cache.h"

namespace halley {
namespace {

namespace fs = std::filesystem;
using cuda::TunedGemm;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const CudaDeviceInfo kDevice = {.name = "NVIDIA H100 80GB HBM3",
                                .compute_major = 9,
                                .num_sms = 132,
                                .shared_bytes_max = 232448};

/// A layer of 256 outputs and 512 inputs.
ModelPart part_with(const std::string& kernel, int group_size, const std::string& low_kernel = "") {
  ModelPart part;
  GpuLinearPlan& linear = part.gpu_plans.emplace_back();
  linear.out_features = 256;
  linear.in_features = 512;
  linear.kernel = kernel;
  linear.low_kernel = low_kernel;
  part.plans.emplace_back();
  part.plans[0].weight.group_size = group_size;
  return part;
}

std::vector<TunedGemm> gemms_with(DType activation_dtype, const ModelPart& part) {
  ModelPlan plan;
  plan.activation_dtype = activation_dtype;
  plan.parts = {part, part};
  return tuned_gemms_of(plan);
}

TEST(TunedGemmsOfAModel, AreThoseThatItsLayersRun) {
  EXPECT_THAT(gemms_with(DType::kF16, part_with("gemm_w4a16_mixed", 64)),
              ElementsAre(TunedGemm{"u4_f16", 256, 512, 64}));
  EXPECT_THAT(gemms_with(DType::kBf16, part_with("gemm_w4a16_mixed", 128)),
              ElementsAre(TunedGemm{"u4_bf16", 256, 512, 128}));
  EXPECT_THAT(gemms_with(DType::kBf16, part_with("gemm_w4a8_mixed", 0)),
              ElementsAre(TunedGemm{"u4_s8", 256, 512, 128}));
  EXPECT_THAT(gemms_with(DType::kF16, part_with("gemm_w4ax_tile", 128)),
              ElementsAre(TunedGemm{"w4ax", 256, 512, 0}));
  // Both precisions.
  EXPECT_THAT(
      gemms_with(DType::kF16, part_with("gemm_nestedf16_tile", 0, "gemm_fp8_row_cublaslt")),
      ElementsAre(TunedGemm{"nested_f16", 256, 512, 0}, TunedGemm{"streamed_fp8", 256, 512, 0}));
  EXPECT_THAT(gemms_with(DType::kF16, part_with("gemm_bf16_cublaslt", 0)), IsEmpty());
  EXPECT_THAT(gemms_with(DType::kF16, part_with("gemv_u3", 128)), IsEmpty());
}

class PrepareTunedPlans : public testing::Test {
 protected:
  PrepareTunedPlans() : folder_(fs::path(testing::TempDir()) / "gpu_tuning_test") {
    fs::remove_all(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~PrepareTunedPlans() override {
    unsetenv("XDG_CACHE_HOME");
    fs::remove_all(folder_);
    cuda::set_tuned_plans({});
  }

  static cuda::TuningTable table_with(const cuda::PlanSettings& settings) {
    return {kDevice.name,
            kDevice.num_sms,
            {{.gemm = kGemm, .rows = 4, .settings = settings, .microseconds = 1}}};
  }
  static ModelPlan prepared(const LoadOptions& options = {}) {
    ModelPlan plan;
    prepare_tuned_plans(options, kDevice, plan);
    return plan;
  }
  static LoadOptions with_file(const std::string& file) {
    LoadOptions options;
    options.tuned_plans = file;
    return options;
  }
  static bool has_plan() { return cuda::find_tuned_plan(kDevice.num_sms, kGemm, 4) != nullptr; }

  static inline const TunedGemm kGemm = {"u4_s8", 256, 512, 128};
  fs::path folder_;
};

TEST_F(PrepareTunedPlans, TakesTheCacheOfThisGpu) {
  EXPECT_EQ(prepared().tuned_plans, "");
  EXPECT_FALSE(has_plan());
  const fs::path cache = cuda::tuning_cache_path(kDevice.name, kDevice.num_sms);
  cuda::add_to_tuning_cache(cache, table_with({{"is_small_m", 1}}));
  const ModelPlan plan = prepared();
  EXPECT_THAT(plan.tuned_plans, HasSubstr(cache.string()));
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_TRUE(has_plan());
}

TEST_F(PrepareTunedPlans, WarnsOfACacheThatCannotBeRead) {
  const fs::path cache = cuda::tuning_cache_path(kDevice.name, kDevice.num_sms);
  cuda::add_to_tuning_cache(cache, table_with({{"tokens", 40}}));
  EXPECT_THAT(prepared().warnings, ElementsAre(HasSubstr("measured plans are left out: ")));
  EXPECT_FALSE(has_plan());
  std::ofstream(cache) << "{";
  EXPECT_THAT(prepared().warnings, ElementsAre(HasSubstr("not valid JSON")));
}

TEST_F(PrepareTunedPlans, RejectsAFileThatCannotBeRead) {
  fs::create_directories(folder_);
  const std::string file = (folder_ / "tuned.json").string();
  std::ofstream(file) << table_with({{"is_small_m", 1}}).to_json();
  EXPECT_THAT(prepared(with_file(file)).tuned_plans, HasSubstr("1 plans of "));
  EXPECT_TRUE(has_plan());
  std::ofstream(file) << table_with({{"tokens", 40}}).to_json();
  EXPECT_THROW(prepared(with_file(file)), InputError);
  EXPECT_THROW(prepared(with_file(file + ".none")), InputError);
}

/// Nothing is measured where there is nothing to measure: this test needs no GPU.
TEST_F(PrepareTunedPlans, MeasuresOnlyWhatIsMissing) {
  const fs::path cache = cuda::tuning_cache_path(kDevice.name, kDevice.num_sms);
  cuda::add_to_tuning_cache(cache, table_with({{"is_small_m", 1}}));
  ModelPlan plan;
  plan.activation_dtype = DType::kF16;
  plan.parts = {part_with("gemm_w4a8_mixed", 0)};
  LoadOptions options;
  options.tune = true;
  prepare_tuned_plans(options, kDevice, plan);
  EXPECT_TRUE(has_plan());
  EXPECT_THAT(plan.tuned_plans, testing::Not(HasSubstr("measured")));
}

}  // namespace
}  // namespace halley
