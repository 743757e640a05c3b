// What would run on a GPU for the golden checkpoint of every format; needs none.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/quant/all/formats.h"
#include "halley/quant/base/golden_checkpoint.h"

namespace halley::cuda {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// The plan of a checkpoint's first quantized layer.
CudaLinearPlan plan_of(const std::string& name) {
  const GoldenCheckpoint golden(name);
  const auto scheme = detect_quant_scheme(golden.quant, *golden.source);
  const LinearSpec spec = linear_spec_of(golden.expected.at("linears").at(0));
  const auto plans = plan_cuda_linear(*scheme, *golden.source, spec, DType::kBf16);
  EXPECT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans.at(0).out_features, spec.out_features());
  EXPECT_EQ(plans.at(0).in_features, spec.in_features);
  return plans.at(0);
}

TEST(CudaPlan, KeepsCodesThatProductsTake) {
  for (const char* name : {"ct_int8_token", "ct_int8_static", "qoq_channel"}) {
    const CudaLinearPlan plan = plan_of(name);
    EXPECT_THAT(plan.form, HasSubstr("kept as i8 codes")) << name;
    EXPECT_STREQ(plan.choice.kernel->name, "gemm_s8_sums_cublaslt") << name;
    EXPECT_GE(plan.device_bytes, static_cast<size_t>(plan.out_features * plan.in_features));
    EXPECT_LT(plan.device_bytes, static_cast<size_t>(plan.out_features * plan.in_features) * 5 / 4);
  }
  for (const char* name : {"ct_fp8_channel_token", "fp8_tensor_dynamic", "fp8_tensor_static"}) {
    const CudaLinearPlan plan = plan_of(name);
    EXPECT_THAT(plan.form, HasSubstr("kept as f8_e4m3 codes")) << name;
    EXPECT_THAT(plan.choice.kernel->name, StartsWith("gemm_fp8_")) << name;
  }
}

TEST(CudaPlan, DecodesWhatNoProductTakes) {
  for (const char* name : {"gptq_4bit_g128_sym", "gptq_3bit_g64_desc_act", "awq_gemm_g128",
                           "ct_2bit_g64_sym", "fp8_block", "fmpq_order"}) {
    const CudaLinearPlan plan = plan_of(name);
    EXPECT_THAT(plan.form, HasSubstr("decoded to bf16: ")) << name;
    EXPECT_STREQ(plan.choice.kernel->name, "gemm_bf16_cublaslt") << name;
    EXPECT_GE(plan.device_bytes, static_cast<size_t>(2 * plan.out_features * plan.in_features));
  }
}

}  // namespace
}  // namespace halley::cuda
