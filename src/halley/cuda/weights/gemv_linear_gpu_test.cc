// Layers of 8, 3 and 2 bits: few rows by codes, more by numbers decoded in parts.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/cuda/weights/gemv_linear.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/testing/synthetic_weights.h"

namespace halley::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

struct LayerCase {
  PackedLayout layout;
  int64_t N, K, group_size;
  bool has_input_perm = false;
};

/// Of one and of several parts, of which the last overlaps.
const std::vector<LayerCase> kLayers = {
    {PackedLayout::kU8Quad, 72, 256, 256},     {PackedLayout::kU8Quad, 1048, 16384, 16384},
    {PackedLayout::kU8Quad, 1032, 16384, 128}, {PackedLayout::kU8Quad, 136, 1152, 128, true},
    {PackedLayout::kU3Quad, 1096, 16384, 64},  {PackedLayout::kU2Quad, 1064, 16640, 128},
    {PackedLayout::kU2Quad, 40, 264, 32, true}};

class GemvLinearGpuTest : public GpuTest {
 protected:
  static PackedWeight make_weight_of(const LayerCase& layer) {
    const QuadCase quad = {
        {1, layer.N, layer.K, true}, layer.layout,          layer.group_size, ZeroKind::kPoint,
        layer.has_input_perm,        ActivationQuant::kNone};
    PackedWeight weight = make_weight(quad, 3);
    auto groups = weight.quant.groups.as<float>();
    for (size_t i = 0; i < groups.size(); ++i) {
      const bool is_zero = i / 32 % 2 == 1;
      groups[i] = is_zero ? std::floor(groups[i]) : f16_to_f32(f32_to_f16(groups[i]));
    }
    return weight;
  }

  CudaLinear make_linear(const PackedWeight& weight, DType dtype) {
    CudaWeightLoader loader(host_, context_, lt_, dtype);
    loader.use_w4_kernels("mma");  // of 8 bits Hopper's own would be taken
    std::vector<CudaLinear::Section> sections;
    const std::vector<float> bias(static_cast<size_t>(weight.N), 0.75f);
    sections.push_back(loader.load_packed("a", weight, bias, 0));
    return {"a", dtype, std::move(sections), lt_};
  }

  CublasLtGemm lt_{context_, {}};
};

/// Every output of some rows against f64, for products of all three ways.
TEST_F(GemvLinearGpuTest, FewAndManyRowsAreRight) {
  for (const LayerCase& layer : kLayers) {
    const PackedWeight weight = make_weight_of(layer);
    const int64_t N = layer.N, K = layer.K;
    for (const DType dtype : {DType::kF16, DType::kBf16}) {
      const CudaLinear linear = make_linear(weight, dtype);
      SCOPED_TRACE(linear.describe());
      ASSERT_THAT(linear.sections()[0].weight->kernel_name(), testing::EndsWith("_gemv"));
      const double half_step = dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
      for (const int64_t M : {5, 40, 200}) {
        DeviceMatrix x(dtype, M, K);
        x.fill_normal(4);
        std::vector<float> values = x.get(stream_);
        for (float& value : values) value /= 8;  // no sum leaves f16
        x.set(values);
        for (const DType y_dtype : {dtype, DType::kF32}) {
          const DeviceMatrix y(y_dtype, M, N);
          DeviceArena arena(linear.workspace_bytes(M), "a test's workspace");
          linear.run({device_, stream_, arena}, x.matrix(), y.matrix());
          const std::vector<float> got = y.get(stream_);
          ASSERT_TRUE(y.guards_are_intact(stream_));
          const int64_t m = M - 1;
          std::vector<float> row(static_cast<size_t>(K));
          for (int64_t n = 0; n < N; ++n) {
            unpack_row(weight, n, row.data());
            double sum = 0.75, size = 0.75;
            for (int64_t k = 0; k < K; ++k) {
              const double product =
                  double{values[static_cast<size_t>(m * K + k)]} * row[static_cast<size_t>(k)];
              sum += product;
              size += std::fabs(product);
            }
            const double error = (1.1 * half_step + 5e-5) * size + half_step * std::fabs(sum);
            ASSERT_NEAR(got[static_cast<size_t>(m * N + n)], sum, error) << "M " << M << " n " << n;
          }
        }
      }
    }
  }
}

TEST_F(GemvLinearGpuTest, MemoryIsThatOfTheCodes) {
  const PackedWeight weight = make_weight_of(kLayers[2]);
  const CudaLinear linear = make_linear(weight, DType::kF16);
  const auto codes = static_cast<size_t>(weight.N * weight.K);
  EXPECT_LT(linear.device_bytes(), codes + codes / 20);
  EXPECT_LT(linear.workspace_bytes(1), size_t{72} << 20);
  EXPECT_THAT(linear.describe(), HasSubstr("gemm_w8a16_gemv"));
}

TEST_F(GemvLinearGpuTest, WhatDoesNotFitIsDecodedAndSaysWhy) {
  PackedWeight weight = make_weight_of(kLayers[0]);
  weight.quant.groups.as<float>()[32] = 0.3f;
  CudaWeightLoader loader(host_, context_, lt_, DType::kF16);
  EXPECT_THAT(loader.load_packed("a", weight, {}, 0).form,
              AllOf(StartsWith("u8_quad, decoded to f16: gemm_w8a16_mixed: zeros of groups are no"),
                    HasSubstr("; gemm_w8a16_gemv: zeros are no multiples of")));
  EXPECT_THAT(loader.load_packed("a", weight, {}, 0, LinearUse::kGrouped).form,
              HasSubstr("experts in 8 bits are multiplied together as numbers"));
  weight.quant.groups.as<float>()[32] = 3.5f;
  EXPECT_THAT(loader.load_packed("a", weight, {}, 0).form,
              AllOf(HasSubstr("kept in 8 bits: per-channel scales; of more than 32 rows"),
                    HasSubstr("; gemm_w8a16_mixed: zeros of groups are no integers")));
  CublasLtOptions options;
  options.choice.is_batch_invariant = true;
  CublasLtGemm one_algorithm(context_, options);
  CudaWeightLoader invariant(host_, context_, one_algorithm, DType::kF16);
  EXPECT_THAT(invariant.load_packed("a", weight, {}, 0).form, HasSubstr("must not depend on how"));
}

}  // namespace
}  // namespace halley::cuda
