#include "halley/quant/base/self_check.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/thread_pool.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/pack_quads.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

PackedWeight dense_weight(ExecContext& context, int64_t N, int64_t K) {
  std::vector<float> values(static_cast<size_t>(N * K));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 7 % 13) - 6);
  }
  const TensorView view = {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {N, K}};
  return pack_dense(context, {&view, 1});
}

PackedWeight quantized_weight(PackedLayout layout, int64_t N, int64_t K,
                              ActivationQuant activation) {
  PackedWeight weight;
  weight.layout = layout;
  weight.N = N;
  weight.K = K;
  weight.quant.group_size = 32;
  weight.quant.activation = activation;
  weight.quant.activation_scale = 0.125f;
  weight.quant.num_s8_inputs = 128;
  weight.quant.s4_clip = 0.75f;
  allocate_quantized(&weight);
  auto codes = weight.data.as<uint8_t>();
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 37 % 120);
  auto groups = weight.quant.groups.as<float>();
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i] = i / kPanelRows % 2 == 0 ? 0.01f * static_cast<float>(i % 5 + 1) : 7.0f;
  }
  return weight;
}

class SelfCheck : public testing::Test {
 protected:
  ThreadPool pool_{2};
  ExecContext context_{pool_};
};

TEST_F(SelfCheck, PassesEveryKernelOnEveryActivation) {
  using enum ActivationQuant;
  int num_checks = 0;
  for (const PackedLayout layout :
       {PackedLayout::kU2Quad, PackedLayout::kU3Quad, PackedLayout::kU4Quad, PackedLayout::kU8Quad,
        PackedLayout::kF8E4M3Quad}) {
    for (const ActivationQuant activation :
         {kNone, kS8Token, kS8Static, kE4m3Token, kE4m3Group128, kE4m3Static, kS4S8Block128}) {
      const PackedWeight weight = quantized_weight(layout, 70, 300, activation);
      for (const GemmKernel& kernel : cpu_gemm_kernels()) {
        if (!kernel.why_not(problem_of(weight)).empty()) continue;
        EXPECT_NO_THROW(self_check(context_, "a", weight, kernel)) << kernel.name;
        ++num_checks;
      }
    }
  }
  EXPECT_GE(num_checks, 12);
}

TEST_F(SelfCheck, ChecksEachKernelOfTwoPrecisionsInItsOwn) {
  PackedWeight weight;
  weight.layout = PackedLayout::kNestedF16Quad;
  weight.N = 70;
  weight.K = 300;
  allocate_quantized(&weight);
  // 1 + 8 * 2^-10 everywhere, of which the upper byte alone is 1.
  auto bytes = weight.data.as<uint8_t>();
  const size_t panel_bytes = packed_bytes(weight.layout, kPanelRows, weight.K);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = i % panel_bytes < panel_bytes / 2 ? 0x78 : 0x08;
  }
  const GemmProblem problem = problem_of(weight);
  const GemmKernel& full = find_gemm_kernel(problem);
  const GemmKernel& low = find_gemm_kernel(low_problem(problem));
  EXPECT_NO_THROW(self_check(context_, "a", weight, full));
  EXPECT_NO_THROW(self_check(context_, "a", weight, low));
  GemmKernel wrong = low;
  wrong.precision = Precision::kFull;
  EXPECT_THROW(self_check(context_, "a", weight, wrong), DeviceError);
}

TEST_F(SelfCheck, PassesLayersWithoutInputsOrOutputs) {
  const GemmKernel& kernel = find_gemm_kernel({PackedLayout::kF32Panel, 0, 4});
  EXPECT_NO_THROW(self_check(context_, "a", dense_weight(context_, 0, 4), kernel));
}

void wrong_output(ExecContext&, const PackedWeight&, const float*, ConstMatrix, Matrix y) {
  for (int64_t m = 0; m < y.num_rows; ++m) std::memset(y.row<float>(m), 0, 4 * 40);
}

void nan_output(ExecContext&, const PackedWeight&, const float*, ConstMatrix, Matrix y) {
  for (int64_t m = 0; m < y.num_rows; ++m) std::memset(y.row<float>(m), 0xFF, 4 * 40);
}

TEST_F(SelfCheck, StopsAWrongKernelByName) {
  const PackedWeight weight = dense_weight(context_, 40, 33);
  GemmKernel kernel = find_gemm_kernel(problem_of(weight));
  kernel.name = "gemm_wrong";
  for (const auto launch : {wrong_output, nan_output}) {
    kernel.launch = launch;
    EXPECT_THAT([&] { self_check(context_, "model.a", weight, kernel); },
                ThrowsMessage<DeviceError>(
                    StartsWith("self-check of layer \"model.a\": kernel gemm_wrong, row 0, output "
                               "0: expected ")));
  }
}

/// A packing error of one code, which reference and kernel do not share, looks like this.
TEST_F(SelfCheck, NoticesASmallError) {
  static const GemmKernel* right = nullptr;
  const PackedWeight weight = dense_weight(context_, 40, 1024);
  right = &find_gemm_kernel(problem_of(weight));
  GemmKernel kernel = *right;
  kernel.launch = [](ExecContext& context, const PackedWeight& w, const float* bias, ConstMatrix x,
                     Matrix y) {
    right->launch(context, w, bias, x, y);
    y.row<float>(1)[w.N - 1] += 1.0f;
  };
  EXPECT_THAT([&] { self_check(context_, "a", weight, kernel); },
              ThrowsMessage<DeviceError>(HasSubstr("row 1, output 39: expected ")));
}

}  // namespace
}  // namespace halley
