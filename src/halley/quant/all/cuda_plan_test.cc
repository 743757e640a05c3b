// Plans for a GPU of the golden checkpoint of every format; needs no GPU.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/cuda/mixed_gemm/mixed_pack.h"
#include "halley/cuda/w4ax_gemm/w4ax_pack.h"
#include "halley/cuda/weights/cuda_linear_plan.h"
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

TEST(CudaPlan, KeepsCodesThatGemmsTake) {
  for (const char* name : {"ct_int8_token", "ct_int8_static"}) {
    const CudaLinearPlan plan = plan_of(name);
    EXPECT_THAT(plan.form, HasSubstr("kept as i8 codes")) << name;
    EXPECT_EQ(plan.kernel, "gemm_s8_sums_cublaslt") << name;
    EXPECT_GE(plan.device_bytes, static_cast<size_t>(plan.out_features * plan.in_features));
    EXPECT_LT(plan.device_bytes, static_cast<size_t>(plan.out_features * plan.in_features) * 5 / 4);
  }
  for (const char* name : {"ct_fp8_channel_token", "fp8_tensor_dynamic", "fp8_tensor_static"}) {
    const CudaLinearPlan plan = plan_of(name);
    EXPECT_THAT(plan.form, HasSubstr("kept as f8_e4m3 codes")) << name;
    EXPECT_THAT(plan.kernel, StartsWith("gemm_fp8_")) << name;
  }
}

TEST(CudaPlan, KeepsFourBits) {
  // The first layer of qoq_g128 has one group of inputs.
  const std::pair<const char*, const char*> kernels[] = {
      {"gptq_4bit_g128_sym", "gemm_w4a16_mixed"},
      {"gptq_4bit_g32_desc_act", "gemm_w4a16_mixed"},
      {"gptq_4bit_channel_sym", "gemm_w4a16_mixed"},
      {"awq_gemm_g128", "gemm_w4a16_mixed"},
      {"awq_gemv_fast_g128", "gemm_w4a16_mixed"},
      {"ct_4bit_g32_asym", "gemm_w4a16_mixed"},
      {"fmpq_order", "gemm_w4ax_tile"},
      {"qoq_channel", "gemm_w4a8_mixed"},
      {"qoq_g128", "gemm_w4a8_mixed"}};
  for (const auto& [name, kernel] : kernels) {
    const CudaLinearPlan plan = plan_of(name);
    EXPECT_THAT(plan.form, HasSubstr("u4_quad, kept in 4 bits")) << name;
    EXPECT_EQ(plan.kernel, kernel) << name;
    // Whole packed tiles of 128 outputs and inputs, and scales and zero points of groups.
    EXPECT_GE(plan.device_bytes, static_cast<size_t>(plan.out_features * plan.in_features / 2));
  }
}

size_t round_up_to(int64_t value, int64_t step) {
  return static_cast<size_t>((value + step - 1) / step * step);
}

/// Codes and scales as they are packed on the host, padding and all, and the order of inputs.
TEST(CudaPlan, CountsTheBytesThatW4axTakes) {
  for (const char* name : {"fmpq_order", "fmpq_natural"}) {
    const CudaLinearPlan plan = plan_of(name);
    ASSERT_EQ(plan.kernel, "gemm_w4ax_tile") << name;
    const int64_t N = plan.out_features, K = plan.in_features;
    const std::vector<uint8_t> codes(static_cast<size_t>(N * K), 8);
    const size_t scale_bytes = round_up_to(N, 128) * round_up_to(K, 128) / 128 * sizeof(float);
    const size_t order_bytes = plan.has_input_perm ? static_cast<size_t>(K) * sizeof(int32_t) : 0;
    EXPECT_EQ(plan.device_bytes, pack_w4ax(codes, N, K).size() + scale_bytes + order_bytes) << name;
  }
}

TEST(CudaPlan, CountsTheBytesThatMixedWeightsTake) {
  for (const auto& [name, kind] : {std::pair("gptq_4bit_g128_sym", MixedKind::kU4Bf16),
                                   {"gptq_8bit_g128_asym", MixedKind::kU8Bf16},
                                   {"qoq_channel", MixedKind::kU4S8}}) {
    const CudaLinearPlan plan = plan_of(name);
    const int64_t N = plan.out_features, K = plan.in_features;
    const int64_t group_size = kind == MixedKind::kU4S8 ? K : 128;
    const auto num_scales = static_cast<size_t>(N * ((K + group_size - 1) / group_size));
    const std::vector<uint8_t> codes(static_cast<size_t>(N * K), 0);
    const std::vector<float> scales(num_scales, 1.0f), zeros(num_scales, 3.0f);
    const MixedPacked packed = pack_mixed({.kind = kind,
                                           .N = N,
                                           .K = K,
                                           .group_size = group_size,
                                           .codes = codes,
                                           .scales = scales,
                                           .zeros = zeros});
    EXPECT_EQ(plan.device_bytes, packed.chunks.size() + sizeof(float) * (packed.w_scales.size() +
                                                                         packed.w_offsets.size()))
        << name;
  }
}

TEST(CudaPlan, KeepsEightBits) {
  for (const char* name : {"gptq_8bit_g128_asym", "ct_8bit_g128_sym"}) {
    const CudaLinearPlan plan = plan_of(name);
    EXPECT_THAT(plan.form, HasSubstr("u8_quad, kept in 8 bits (u8_bf16)")) << name;
    EXPECT_EQ(plan.kernel, "gemm_w8a16_mixed") << name;
    EXPECT_EQ(plan.mma_kernel, "") << name;
    EXPECT_GE(plan.device_bytes, static_cast<size_t>(plan.out_features * plan.in_features));
  }
}

TEST(CudaPlan, KeepsOtherBitsForSmallM) {
  const std::pair<const char*, const char*> kernels[] = {
      {"gptq_3bit_g64_desc_act", "gemm_w3a16_gemv"},
      {"ct_3bit_g128_asym_dense", "gemm_w3a16_gemv"},
      {"gptq_2bit_g128_asym", "gemm_w2a16_gemv"},
      {"ct_2bit_g64_sym", "gemm_w2a16_gemv"}};
  for (const auto& [name, kernel] : kernels) {
    const CudaLinearPlan plan = plan_of(name);
    EXPECT_THAT(plan.form, HasSubstr(" bits: ")) << name;
    EXPECT_THAT(plan.form, HasSubstr(" rows decoded to bf16")) << name;
    EXPECT_EQ(plan.kernel, kernel) << name;
    EXPECT_LT(plan.device_bytes, static_cast<size_t>(2 * plan.out_features * plan.in_features));
  }
}

TEST(CudaPlan, DequantizesWhatNoGemmTakes) {
  for (const char* name : {"gptq_4bit_g16_sym", "fp8_block"}) {
    const CudaLinearPlan plan = plan_of(name);
    EXPECT_THAT(plan.form, HasSubstr("decoded to bf16: ")) << name;
    EXPECT_EQ(plan.kernel, "gemm_bf16_cublaslt") << name;
    EXPECT_GE(plan.device_bytes, static_cast<size_t>(2 * plan.out_features * plan.in_features));
  }
}

}  // namespace
}  // namespace halley::cuda
