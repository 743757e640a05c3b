// Linear layers whose codes of 4 and 8 bits stay as they are: what lies in memory, products,
// rejections.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/mixed_gemm/mixed_gemm.h"
#include "halley/cuda/mixed_gemm/mixed_pack.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/testing/rounding.h"
#include "halley/cuda/weights/cuda_weight_loader.h"
#include "halley/cuda/weights/order_columns.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/testing/synthetic_weights.h"

namespace halley::cuda {
namespace {

using testing::HasSubstr;

/// How a test's weight is made.
struct FormCase {
  DType dtype;
  ActivationQuant activation;
  int64_t group_size;  // 0: one for each output
  ZeroKind zero_kind;
  bool has_order;
  MixedKind kind;
};

constexpr auto kNone = ActivationQuant::kNone, kToken = ActivationQuant::kS8Token;
constexpr auto kPoint = ZeroKind::kPoint, kOffset = ZeroKind::kOffset;

constexpr FormCase kForms[] = {
    {DType::kF16, kNone, 128, kPoint, false, MixedKind::kU4F16},
    {DType::kF16, kNone, 0, kPoint, false, MixedKind::kU4F16},
    {DType::kF16, kNone, 64, kOffset, false, MixedKind::kU4F16},
    {DType::kF16, kNone, 32, kPoint, true, MixedKind::kU4F16},
    {DType::kF16, kToken, 32, kPoint, false, MixedKind::kU4F16},
    {DType::kF16, kToken, 64, kPoint, true, MixedKind::kU4F16},
    {DType::kF16, ActivationQuant::kS4S8Block128, 128, kPoint, true, MixedKind::kU4F16},
    {DType::kBf16, kNone, 128, kPoint, false, MixedKind::kU4Bf16},
    {DType::kBf16, kNone, 256, kPoint, true, MixedKind::kU4Bf16},
    {DType::kF16, kToken, 0, kPoint, false, MixedKind::kU4S8},
    {DType::kBf16, kToken, 0, kOffset, false, MixedKind::kU4S8},
    {DType::kBf16, ActivationQuant::kS8Static, 0, kPoint, false, MixedKind::kU4S8},
    {DType::kF16, kToken, 128, kOffset, false, MixedKind::kU4GroupS8},
    {DType::kBf16, kToken, 32, kOffset, false, MixedKind::kU4GroupS8},
    {DType::kF16, ActivationQuant::kS8Static, 64, kOffset, false, MixedKind::kU4GroupS8},
    {DType::kF16, kNone, 128, kPoint, false, MixedKind::kU8F16},
    {DType::kF16, kNone, 0, kPoint, false, MixedKind::kU8F16},
    {DType::kF16, kNone, 64, kOffset, false, MixedKind::kU8F16},
    {DType::kF16, kToken, 32, kPoint, true, MixedKind::kU8F16},
    {DType::kBf16, kNone, 128, kPoint, false, MixedKind::kU8Bf16},
    {DType::kBf16, kNone, 256, kPoint, true, MixedKind::kU8Bf16},
    {DType::kBf16, kToken, 32, kOffset, false, MixedKind::kU8Bf16},
};

std::string name_of_form(const FormCase& form) {
  return str(form.dtype, " ", form.activation, ", groups of ", form.group_size,
             form.zero_kind == kPoint ? " point" : " offset", form.has_order ? ", ordered" : "");
}

/// Codes of every value; scales that f16 and bf16 have; zeros that the kind takes.
PackedWeight make_form(const FormCase& form, int64_t N, int64_t K, uint32_t seed) {
  const QuadCase quad = {{1, N, K},
                         is_u8(form.kind) ? PackedLayout::kU8Quad : PackedLayout::kU4Quad,
                         form.group_size == 0 ? K : form.group_size,
                         form.zero_kind,
                         form.has_order,
                         form.activation};
  PackedWeight weight = make_weight(quad, seed);
  std::mt19937 random(seed);
  const auto num_groups = static_cast<size_t>(weight.num_groups());
  auto groups = weight.quant.groups.as<float>();
  for (int64_t n = 0; n < N; ++n) {
    const float unit = static_cast<float>(1 + random() % 200) / 2048 * (random() % 4 == 0 ? -1 : 1);
    for (size_t g = 0; g < num_groups; ++g) {
      float* params = groups.data() +
                      (static_cast<size_t>(n / kPanelRows) * num_groups + g) * 2 * kPanelRows +
                      n % kPanelRows;
      float scale = static_cast<float>(1 + random() % 200) / (is_u8(form.kind) ? 65536 : 4096);
      auto zero = static_cast<float>(random() % static_cast<unsigned>(zero_max(form.kind) + 1));
      if (form.kind == MixedKind::kU4GroupS8) {
        // Codes 0 to 15 all fit in s8.
        const auto factor = static_cast<float>(random() % 9);
        scale = unit * factor;
        zero = scale * static_cast<float>(factor == 0 ? 0 : random() % 8 + 1) + unit;
      } else if (form.zero_kind == kOffset && form.kind != MixedKind::kU4S8) {
        zero = rounded_to(DType::kF16, scale * zero);
      }
      params[0] = scale;
      params[kPanelRows] = zero;
    }
  }
  return weight;
}

class MixedLinearGpuTest : public GpuTest {
 protected:
  CublasLtGemm lt_{context_, {}};

  CudaLinear load(const PackedWeight& weight, const std::vector<float>& bias, DType dtype,
                  const char* w4_kernels = "hopper") {
    CudaWeightLoader loader(host_, context_, lt_, dtype);
    loader.use_w4_kernels(w4_kernels);
    std::vector<CudaLinear::Section> sections;
    sections.push_back(loader.load_packed("a", weight, bias, 0));
    return CudaLinear("a", dtype, std::move(sections), lt_);
  }

  MixedPacked fetch(const MixedWeight& weight) const {
    MixedPacked packed = {
        .kind = weight.kind, .N = weight.N, .K = weight.K, .group_size = weight.group_size};
    packed.chunks.resize(weight.chunks.num_bytes());
    check_cuda(cudaMemcpy(packed.chunks.data(), weight.chunks.data(), packed.chunks.size(),
                          cudaMemcpyDeviceToHost),
               "copy of chunks");
    packed.w_scales.resize(weight.scales.num_bytes() / sizeof(float));
    if (!packed.w_scales.empty()) {
      check_cuda(cudaMemcpy(packed.w_scales.data(), weight.scales.data(), weight.scales.num_bytes(),
                            cudaMemcpyDeviceToHost),
                 "copy of scales");
    }
    return packed;
  }

  /// y of rows against f64 sums of the weights and the rounding that the CPU has.
  void check_rows(const CudaLinear& linear, const PackedWeight& weight,
                  const std::vector<float>& bias, int64_t M, DType y_dtype) {
    const int64_t K = weight.K;
    DeviceMatrix x(linear.dtype(), M, K);
    x.fill_normal(static_cast<uint32_t>(M));
    const std::vector<float> values = x.get(stream_);
    DeviceMatrix y(y_dtype, M, weight.N);
    DeviceArena exact(linear.workspace_bytes(M), "a test's workspace");
    const CudaContext context = {device_, stream_, exact};
    linear.run(context, x.matrix(), y.matrix());
    const std::vector<float> got = y.get(stream_);
    EXPECT_TRUE(y.guards_are_intact(stream_));
    // Scale, weight and rounded input; the output.
    const double step = linear.dtype() == DType::kF16 ? 0x1p-11 : 0x1p-8;
    const double y_step = y_dtype == DType::kF32 ? 0x1p-24 : step;
    std::vector<float> w(static_cast<size_t>(K)), rounded(static_cast<size_t>(K));
    for (int64_t m = 0; m < M; ++m) {
      round_activations(
          weight.quant,
          std::span(values).subspan(static_cast<size_t>(m * K), static_cast<size_t>(K)),
          rounded.data());
      // Some outputs of many rows, all of few.
      for (int64_t n = m % 7 * (M > 20 ? 1 : 0); n<weight.N; n += M> 20 ? 7 : 1) {
        unpack_row(weight, n, w.data());
        double expected = bias.empty() ? 0.0 : double{bias[static_cast<size_t>(n)]};
        double magnitude = std::fabs(expected), sum_x = 0, largest = 0;
        for (size_t k = 0; k < w.size(); ++k) {
          expected += double{rounded[k]} * w[k];
          magnitude += std::fabs(double{rounded[k]} * w[k]);
          sum_x += std::fabs(rounded[k]);
          largest = std::max(largest, std::fabs(double{w[k]}));
        }
        const CudaLinear::Section& section = linear.sections()[0];
        const bool is_exact = section.weight->mixed() != nullptr && section.has_coded_inputs();
        const double error_max = (is_exact ? 1e-5 : 2.5 * step + 1e-5) * magnitude +
                                 (is_exact ? 1e-5 * sum_x * largest : 0) +
                                 y_step * std::fabs(expected) + 1e-6;
        const float at = got[static_cast<size_t>(m * weight.N + n)];
        ASSERT_LE(std::fabs(at - expected), error_max)
            << "[" << m << ", " << n << "] of " << M << " rows: expected " << expected << ", got "
            << at << "\n"
            << linear.describe();
      }
    }
  }
};

/// Packing on the GPU: the numbers are the checkpoint's, bit for bit where they are numbers.
TEST_F(MixedLinearGpuTest, ChunksHoldTheWeightsNumbers) {
  for (const FormCase& form : kForms) {
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{1, 133}, {37, 260}, {300, 513}}) {
      SCOPED_TRACE(str(name_of_form(form), " N ", N, " K ", K));
      const PackedWeight weight = make_form(form, N, K, static_cast<uint32_t>(N));
      const CudaLinear linear = load(weight, {}, form.dtype);
      const CudaLinear::Section& section = linear.sections()[0];
      ASSERT_NE(section.weight->mixed(), nullptr) << linear.describe();
      const MixedWeight& mixed = *section.weight->mixed();
      ASSERT_EQ(mixed.kind, form.kind);
      const MixedPacked packed = fetch(mixed);
      const auto& order = weight.quant.input_perm;
      std::vector<float> w(static_cast<size_t>(K));
      for (int64_t n = 0; n < N; ++n) {
        unpack_row(weight, n, w.data());
        const std::vector<float> row = unpack_mixed_row(packed, n);
        const float* group = weight.group(n / kPanelRows, 0);
        for (size_t k = 0; k < row.size(); ++k) {
          const float expected = w[order.empty() ? k : static_cast<size_t>(order[k])];
          if (is_s8(form.kind)) {
            const float scale = packed.w_scales[static_cast<size_t>(n)];
            const float offset =
                mixed.has_offsets ? packed.w_scales[static_cast<size_t>(N + n)] : 0;
            const float largest = std::max(1.0f, std::fabs(group[kPanelRows + n % kPanelRows]));
            ASSERT_NEAR(row[k] * scale - offset, expected, 1e-6 * largest) << n << ", " << k;
          } else if (form.zero_kind == kPoint) {
            ASSERT_EQ(std::bit_cast<uint32_t>(row[k]),
                      std::bit_cast<uint32_t>(rounded_to(form.dtype, expected)))
                << n << ", " << k;
          } else {
            // The stored product of scale and zero was rounded.
            ASSERT_NEAR(row[k], expected, 2e-3 + 0x1p-8 * std::fabs(expected)) << n << ", " << k;
          }
        }
      }
    }
  }
}

TEST_F(MixedLinearGpuTest, ProductsOfEveryFormAreRight) {
  for (const FormCase& form : kForms) {
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{37, 133}, {136, 448}, {257, 640}}) {
      SCOPED_TRACE(str(name_of_form(form), " N ", N, " K ", K));
      const PackedWeight weight = make_form(form, N, K, static_cast<uint32_t>(K));
      std::vector<float> bias;
      if (N % 2 == 1) bias.assign(static_cast<size_t>(N), -0.375f);
      const CudaLinear linear = load(weight, bias, form.dtype);
      EXPECT_STREQ(linear.sections()[0].weight->kernel_name(), mixed_kernel_name(form.kind));
      for (const int64_t M : {1, 2, 8, 9, 17, 64, 65, 300}) {
        check_rows(linear, weight, bias, M, M % 2 == 1 ? form.dtype : DType::kF32);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// By the kernels that GPUs before Hopper have, asked for by name.
TEST_F(MixedLinearGpuTest, ProductsByMmaAreRight) {
  for (const FormCase& form : kForms) {
    if (is_u8(form.kind)) continue;  // they have none
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{37, 133}, {257, 640}}) {
      SCOPED_TRACE(str(name_of_form(form), " N ", N, " K ", K));
      const PackedWeight weight = make_form(form, N, K, static_cast<uint32_t>(K));
      const std::vector<float> bias(static_cast<size_t>(N), -0.375f);
      const CudaLinear linear = load(weight, bias, form.dtype, "mma");
      EXPECT_STREQ(linear.sections()[0].weight->kernel_name(), mma_kernel_name(form.kind));
      EXPECT_THAT(linear.describe(), HasSubstr("128 outputs x 16 tokens"));
      for (const int64_t M : {1, 17, 150}) {
        check_rows(linear, weight, bias, M, M % 2 == 1 ? form.dtype : DType::kF32);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MixedLinearGpuTest, JoinsAStagedWeightOfManyPanels) {
  // More than passes through the staging memory at once.
  const FormCase& form = kForms[12];
  const PackedWeight weight = make_form(form, 17000, 8192, 3);
  const CudaLinear linear = load(weight, {}, form.dtype);
  ASSERT_EQ(linear.sections()[0].weight->mixed()->kind, form.kind);
  const MixedPacked packed = fetch(*linear.sections()[0].weight->mixed());
  std::vector<float> w(8192);
  for (const int64_t n : {0, 127, 128, 8191, 8192, 15999, 16000, 16383, 16384, 16999}) {
    unpack_row(weight, n, w.data());
    const std::vector<float> row = unpack_mixed_row(packed, n);
    for (size_t k = 0; k < row.size(); ++k) {
      ASSERT_NEAR(row[k] * packed.w_scales[static_cast<size_t>(n)], w[k], 1e-6) << n << ", " << k;
    }
  }
}

TEST_F(MixedLinearGpuTest, DecodesWhatTheKindsRejectAndSaysWhy) {
  const FormCase usual = kForms[0], token = kForms[12];
  constexpr size_t kZero = 32 + 7, kScale = 7;
  const auto reject = [&](const FormCase& form, size_t place, float value) {
    PackedWeight weight = make_form(form, 40, 256, 5);
    weight.quant.groups.as<float>()[kZero] = 8;
    weight.quant.groups.as<float>()[place] = value;
    const CudaLinear linear = load(weight, {}, form.dtype);
    if (linear.sections()[0].weight->mixed() == nullptr)
      check_rows(linear, weight, {}, 3, DType::kF32);
    return linear.sections()[0].form;
  };
  EXPECT_THAT(reject(usual, kZero, 3.5f),
              HasSubstr("decoded to f16: gemm_w4a16_mixed: zeros of groups are no integers"));
  EXPECT_THAT(reject(usual, kZero, 17.0f), HasSubstr("zeros of groups are no integers"));
  EXPECT_THAT(reject(usual, kZero, -1.0f), HasSubstr("zeros of groups are no integers"));
  EXPECT_THAT(reject(usual, kScale, 5000.0f), HasSubstr("scales leave the activations' type"));
  // f16 has it as a number of two bits.
  EXPECT_THAT(reject(usual, kScale, 2.6f * 0x1p-24f), HasSubstr("scales leave"));
  // Groups whose numbers are no multiples fall back to numbers of 16 bits, where zeros allow it.
  const std::string form = reject(token, kScale, 0.0123f);
  EXPECT_THAT(form, HasSubstr("decoded to f16: gemm_w4a8_group_mixed: scales of groups are no"));
  EXPECT_THAT(form, HasSubstr("; gemm_w4a16_mixed: zeros of groups"));
}

TEST_F(MixedLinearGpuTest, ExpertsStayInFourBitsAndF32IsDecoded) {
  const PackedWeight weight = make_form(kForms[0], 40, 256, 5);
  CudaWeightLoader loader(host_, context_, lt_, DType::kF16);
  const auto expert = loader.load_packed("a", weight, {}, 0, LinearUse::kGrouped);
  EXPECT_NE(expert.weight->mixed(), nullptr);
  CudaWeightLoader wide(host_, context_, lt_, DType::kF32);
  EXPECT_THAT(wide.load_packed("a", weight, {}, 0).form, HasSubstr("f32 activations"));
}

TEST_F(MixedLinearGpuTest, RowsDoNotDependOnTheBatchWhereAsked) {
  CublasLtOptions options;
  options.choice.is_batch_invariant = true;
  CublasLtGemm lt(context_, options);
  const FormCase forms[] = {kForms[0], kForms[7], kForms[9], kForms[12], kForms[15]};
  for (size_t i = 0; i < 2 * std::size(forms); ++i) {
    const FormCase& form = forms[i / 2];
    const char* kernels = i % 2 == 0 ? "hopper" : "mma";
    SCOPED_TRACE(str(name_of_form(form), " ", kernels));
    const PackedWeight weight = make_form(form, 264, 1024, 8);
    CudaWeightLoader loader(host_, context_, lt, form.dtype);
    loader.use_w4_kernels(kernels);
    std::vector<CudaLinear::Section> sections;
    sections.push_back(loader.load_packed("a", weight, {}, 0));
    const CudaLinear linear("a", form.dtype, std::move(sections), lt);
    constexpr int64_t kRows = 200;
    DeviceMatrix x(form.dtype, kRows, 1024), y(form.dtype, kRows, 264);
    x.fill_normal(2);
    linear.run(context_, x.matrix(), y.matrix());
    const std::vector<float> all = y.get(stream_);
    for (const int64_t M : {1, 8, 16, 65}) {
      DeviceMatrix few(form.dtype, M, 264);
      linear.run(context_, x.matrix().rows(0, M), few.matrix());
      const std::vector<float> got = few.get(stream_);
      ASSERT_EQ(std::memcmp(got.data(), all.data(), got.size() * sizeof(float)), 0) << M;
    }
  }
}

TEST_F(MixedLinearGpuTest, InputsAreOrdered) {
  for (const int64_t K : {1, 255, 1030}) {
    std::vector<int32_t> order(static_cast<size_t>(K));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    const DeviceArray<int32_t> on_device(order);
    for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF32}) {
      DeviceMatrix x(dtype, 5, K), y(DType::kBf16, 5, K);
      x.fill_normal(1);
      order_columns(context_, on_device.data(), x.matrix(), y.matrix());
      const std::vector<float> from = x.get(stream_), to = y.get(stream_);
      EXPECT_TRUE(y.guards_are_intact(stream_));
      for (size_t i = 0; i < to.size(); ++i) {
        const size_t row = i / static_cast<size_t>(K) * static_cast<size_t>(K);
        const auto column = static_cast<size_t>(order[i - row]);
        ASSERT_EQ(to[i], rounded_to(DType::kBf16, from[row + column])) << i;
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
