// GEMMs through the C ABI versus f64 references, and rejected calls on a GPU.
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/core/float16.h"
#include "halley/core/matrix.h"
#include "halley/cuda/library/halley_kernels.h"
#include "halley/cuda/library/halley_kernels_cpp.h"
#include "halley/cuda/library/testing/kernels_views.h"
#include "halley/cuda/mixed_gemm/testing/mixed_test_weight.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/testing/device_matrix.h"

namespace {

using halley::cuda::MixedKind;
using halley::cuda::RandomWeight;
using ::testing::HasSubstr;

using halley::DeviceArray;
using halley::DeviceMatrix;
using halley::DType;
using halley::view_of;

halley_kernels_kind kind_of(MixedKind kind) {
  if (kind == MixedKind::kU8F16) return HALLEY_KERNELS_W8A16_F16;
  if (kind == MixedKind::kU8Bf16) return HALLEY_KERNELS_W8A16_BF16;
  return static_cast<halley_kernels_kind>(kind);
}

halley_kernels_source source_of(const RandomWeight& weight) {
  return {.kind = kind_of(weight.source.kind),
          .N = weight.source.N,
          .K = weight.source.K,
          .group_size = weight.source.group_size,
          .codes = weight.codes.data(),
          .scales = weight.scales.data(),
          .zeros = weight.zeros.data(),
          .group_scales = weight.group_scales.empty() ? nullptr : weight.group_scales.data()};
}

/// The dequantized weight.
double dequantized(const RandomWeight& weight, int64_t n, int64_t k) {
  const double number = weight.number(n, k);
  const auto output = static_cast<size_t>(n);
  if (weight.source.kind == MixedKind::kU4S8) {
    const double code = number + 8;
    return weight.scales[output] * (code - weight.zeros[output]);
  }
  return weight.source.kind == MixedKind::kU4GroupS8 ? weight.scales[output] * number : number;
}

/// Tolerance relative to the sum of |x w|: f32 accumulation, and the rounding of dequantized
/// weights to 16 bits, which the GEMM kernels for large M do and those for small M do not.
double tolerance_of(MixedKind kind) {
  constexpr double kAccumulation = 1e-4;
  if (halley::cuda::is_s8(kind)) return kAccumulation;
  return kAccumulation + (halley::cuda::is_f16(kind) ? 0x1p-12 : 0x1p-9);
}

/// Inputs on the GPU as GEMMs with a weight of this kind take them.
struct Inputs {
  Inputs(const halley_kernels::Context& context, MixedKind kind, int64_t M, int64_t K)
      : x(halley::cuda::test_input_dtype(kind), M, K),
        scales(std::vector<float>(static_cast<size_t>(M), NAN)),
        sums(std::vector<int32_t>(static_cast<size_t>(M), -1)) {
    if (!halley::cuda::is_s8(kind)) {
      x.fill_normal(7);
      return;
    }
    DeviceMatrix numbers(DType::kF32, M, K);
    numbers.fill_normal(7);
    context.quantize_rows(view_of(numbers), view_of(x), scales.data(), sums.data(), nullptr);
  }

  /// The inputs as floating-point values [M, K], dequantized if they are s8.
  std::vector<float> values(const halley::CudaStream& stream, bool has_scales) const {
    std::vector<float> all = x.get(stream);
    if (!has_scales) return all;
    std::vector<float> of_rows(static_cast<size_t>(x.num_rows()));
    halley::check_cuda(cudaMemcpy(of_rows.data(), scales.data(), of_rows.size() * sizeof(float),
                                  cudaMemcpyDeviceToHost),
                       "copy of scales");
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] *= of_rows[i / static_cast<size_t>(x.num_cols())];
    }
    return all;
  }

  DeviceMatrix x;
  DeviceArray<float> scales;
  DeviceArray<int32_t> sums;
};

class HalleyKernelsGpu
    : public ::testing::TestWithParam<std::tuple<MixedKind, const char* /*kernels*/>> {};

TEST_P(HalleyKernelsGpu, GemmAgreesWithDequantizedWeights) {
  constexpr int64_t kN = 200, kK = 384;
  const auto& [kind, kernels] = GetParam();
  const RandomWeight weight(kind, kN, kK, kind == MixedKind::kU4S8 ? kK : 128);
  const halley_kernels::Context context(0);
  context.choose(kernels);
  const halley_kernels::Weight packed(context, source_of(weight));
  EXPECT_GE(packed.num_bytes(), static_cast<size_t>(kN * kK / 2));
  const halley::CudaStream stream;
  for (const int64_t M : {1, 7, 40, 300}) {
    const Inputs inputs(context, kind, M, kK);
    DeviceMatrix y(DType::kF32, M, kN);
    const halley_kernels_input input = {.x = view_of(inputs.x),
                                        .scales = inputs.scales.data(),
                                        .sums = inputs.sums.data(),
                                        .bias = nullptr};
    context.gemm(packed, input, view_of(y), nullptr);
    halley::check_cuda(cudaDeviceSynchronize(), "the GEMM");
    const std::vector<float> x = inputs.values(stream, halley::cuda::is_s8(kind));
    const std::vector<float> got = y.get(stream);
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < kK; ++k) {
          const double term = x[static_cast<size_t>(m * kK + k)] * dequantized(weight, n, k);
          sum += term;
          magnitude += std::abs(term);
        }
        ASSERT_NEAR(got[static_cast<size_t>(m * kN + n)], sum,
                    tolerance_of(kind) * magnitude + 1e-6)
            << kind << " M " << M << " row " << m << " output " << n;
      }
    }
    EXPECT_TRUE(y.guards_are_intact(stream));
    EXPECT_THAT(context.describe(packed, M), ::testing::StartsWith(kernels));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, HalleyKernelsGpu,
    ::testing::Combine(::testing::Values(MixedKind::kU4S8, MixedKind::kU4GroupS8, MixedKind::kU4F16,
                                         MixedKind::kU4Bf16),
                       ::testing::Values("hopper", "mma")));

INSTANTIATE_TEST_SUITE_P(KindsOfHopper, HalleyKernelsGpu,
                         ::testing::Combine(::testing::Values(MixedKind::kU8F16,
                                                              MixedKind::kU8Bf16),
                                            ::testing::Values("hopper")));

TEST(HalleyKernelsEightBits, AreRejectedByOtherKernels) {
  const RandomWeight weight(MixedKind::kU8F16, 16, 64, 64);
  const halley_kernels::Context context(0);
  const halley_kernels::Weight packed(context, source_of(weight));
  context.choose("mma");
  char text[64] = "";
  EXPECT_EQ(halley_kernels_describe(context.get(), packed.get(), 1, text, sizeof(text)),
            HALLEY_KERNELS_UNSUPPORTED);
  EXPECT_THAT(halley_kernels_last_error(), ::testing::HasSubstr("expected the kernels \"hopper\""));
}

class HalleyKernelsBlocks : public ::testing::TestWithParam<const char* /*kernels*/> {};

/// The library quantizes and multiplies; the reference is f64 over dequantized operands.
TEST_P(HalleyKernelsBlocks, GemmAgreesWithDequantizedBlocks) {
  constexpr int64_t kN = 150, kK = 500, kBlocks = 4, kPitch = 128, kS8Inputs = 128;
  const halley_kernels::Context context(0);
  context.choose(GetParam());
  const RandomWeight random(MixedKind::kU4S8, kN, kK, kK);
  std::vector<float> w_scales;
  for (int64_t i = 0; i < kN * kBlocks; ++i) {
    w_scales.push_back(static_cast<float>(i % 31 + 1) / 256);
  }
  halley_kernels_block_weight* weight = nullptr;
  ASSERT_EQ(halley_kernels_pack_blocks(context.get(), kN, kK, random.codes.data(), w_scales.data(),
                                       &weight),
            HALLEY_KERNELS_OK)
      << halley_kernels_last_error();
  const halley::CudaStream stream;
  for (const int64_t M : {1, 20, 100}) {
    DeviceMatrix numbers(DType::kF16, M, kK), x(DType::kI8, M, kK, 12), y(DType::kF32, M, kN);
    numbers.fill_normal(3);
    const DeviceArray<float> scales(std::vector<float>(kBlocks * kPitch, NAN));
    const halley_kernels_block_input input = {.x = view_of(x),
                                              .scales = scales.data(),
                                              .scales_pitch = kPitch,
                                              .num_s8_inputs = kS8Inputs,
                                              .bias = nullptr};
    ASSERT_EQ(
        halley_kernels_quantize_blocks(context.get(), view_of(numbers), 0.9f, &input, nullptr),
        HALLEY_KERNELS_OK)
        << halley_kernels_last_error();
    ASSERT_EQ(halley_kernels_block_gemm(context.get(), weight, &input, view_of(y), nullptr),
              HALLEY_KERNELS_OK)
        << halley_kernels_last_error();
    halley::check_cuda(cudaDeviceSynchronize(), "the GEMM");
    std::vector<float> x_scales(kBlocks * kPitch);
    halley::check_cuda(cudaMemcpy(x_scales.data(), scales.data(), x_scales.size() * sizeof(float),
                                  cudaMemcpyDeviceToHost),
                       "copy of scales");
    const std::vector<float> quantized = x.get(stream), from = numbers.get(stream),
                             got = y.get(stream);
    EXPECT_TRUE(y.guards_are_intact(stream));
    EXPECT_TRUE(x.guards_are_intact(stream));
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < kK; ++k) {
          const double x_scale = x_scales[static_cast<size_t>(k / 128 * kPitch + m)];
          const double code = quantized[static_cast<size_t>(m * kK + k)];
          const double number = from[static_cast<size_t>(m * kK + k)];
          // Half a quantization step, plus the clipping of 4-bit blocks.
          ASSERT_NEAR(code * x_scale, number, 0.51 * x_scale + (k < kS8Inputs ? 0 : 0.12 * 4.5));
          const double w = w_scales[static_cast<size_t>(n * kBlocks + k / 128)] *
                           (random.codes[static_cast<size_t>(n * kK + k)] - 8);
          sum += code * x_scale * w;
          magnitude += std::abs(code * x_scale * w);
        }
        ASSERT_NEAR(got[static_cast<size_t>(m * kN + n)], sum, 1e-6 * magnitude) << m << " " << n;
      }
    }
  }
  halley_kernels_free_blocks(weight);
}

INSTANTIATE_TEST_SUITE_P(Kernels, HalleyKernelsBlocks, ::testing::Values("hopper", "mma"));

struct FewBits {
  halley_kernels_kind kind;
  int bits;
  DType x_dtype;
};

TEST(HalleyKernelsFewBits, GemvIsExact) {
  constexpr int64_t kN = 72, kK = 384, kM = 11, kGroup = 128, kGroups = kK / kGroup;
  const halley_kernels::Context context(0);
  const halley::CudaStream stream;
  for (const FewBits& test :
       {FewBits{HALLEY_KERNELS_W8A16, 8, DType::kF16},
        FewBits{HALLEY_KERNELS_W8A16, 8, DType::kBf16},
        FewBits{HALLEY_KERNELS_W3A16, 3, DType::kF16},
        FewBits{HALLEY_KERNELS_W2A16, 2, DType::kBf16},
        FewBits{HALLEY_KERNELS_W1A16, 1, DType::kF16}, FewBits{HALLEY_KERNELS_W2A8, 2, DType::kI8},
        FewBits{HALLEY_KERNELS_W1A8, 1, DType::kI8}}) {
    std::vector<uint8_t> quantized(static_cast<size_t>(kN * kK));
    for (size_t i = 0; i < quantized.size(); ++i) {
      quantized[i] = static_cast<uint8_t>((i * 37 + i / 100) % (size_t{1} << test.bits));
    }
    std::vector<float> scales(static_cast<size_t>(kN * kGroups));
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = i % 2 == 0 ? 0.5f : 2.0f;
    const halley_kernels::Weight weight(context, {.kind = test.kind,
                                                  .N = kN,
                                                  .K = kK,
                                                  .group_size = kGroup,
                                                  .codes = quantized.data(),
                                                  .scales = scales.data(),
                                                  .zeros = nullptr,
                                                  .group_scales = nullptr});
    std::vector<float> values(static_cast<size_t>(kM * kK));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) - 6;
    DeviceMatrix x(test.x_dtype, kM, kK);
    const DeviceMatrix y(DType::kF32, kM, kN);
    x.set(values);
    const DeviceArray<float> x_scales(std::vector<float>(static_cast<size_t>(kM), 0.25f));
    const bool is_s8 = test.x_dtype == DType::kI8;
    context.gemm(weight,
                 {.x = view_of(x), .scales = x_scales.data(), .sums = nullptr, .bias = nullptr},
                 view_of(y), nullptr);
    halley::check_cuda(cudaDeviceSynchronize(), "the GEMM");
    const std::vector<float> got = y.get(stream);
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < kK; ++k) {
          const double code = quantized[static_cast<size_t>(n * kK + k)];
          sum += double{values[static_cast<size_t>(m * kK + k)]} *
                 scales[static_cast<size_t>(n * kGroups + k / kGroup)] *
                 (code - (1 << test.bits) / 2.0);
        }
        ASSERT_EQ(got[static_cast<size_t>(m * kN + n)], is_s8 ? sum / 4 : sum)
            << test.kind << " row " << m << " output " << n;
      }
    }
    EXPECT_TRUE(y.guards_are_intact(stream));
    EXPECT_THAT(context.describe(weight, 1), HasSubstr("outputs a block"));
  }
}

TEST(HalleyKernelsGemm, HasTheSameBitsUnderBothNames) {
  constexpr int64_t kN = 48, kK = 256, kM = 5;
  const RandomWeight random(MixedKind::kU4F16, kN, kK, 128);
  const halley_kernels::Context context(0);
  const halley_kernels::Weight weight(context, source_of(random));
  DeviceMatrix x(DType::kF16, kM, kK);
  x.fill_normal(7);
  const halley_kernels_input input = {
      .x = view_of(x), .scales = nullptr, .sums = nullptr, .bias = nullptr};
  const halley::CudaStream stream;
  std::vector<std::vector<float>> results;
  for (const auto multiply : {halley_kernels_gemm, halley_kernels_product}) {
    const DeviceMatrix y(DType::kF32, kM, kN);
    ASSERT_EQ(multiply(context.get(), weight.get(), &input, view_of(y), nullptr), HALLEY_KERNELS_OK)
        << halley_kernels_last_error();
    halley::check_cuda(cudaDeviceSynchronize(), "the GEMM");
    results.push_back(y.get(stream));
  }
  EXPECT_EQ(results[0], results[1]);
}

std::string message_of(halley_kernels_status status, halley_kernels_status expected) {
  EXPECT_EQ(status, expected);
  return halley_kernels_last_error();
}

TEST(HalleyKernelsRejections, NameWhatIsWrong) {
  const halley_kernels::Context context(0);
  EXPECT_THAT(
      message_of(halley_kernels_choose(context.get(), "volta"), HALLEY_KERNELS_WRONG_ARGUMENT),
      HasSubstr("expected hopper or mma, got \"volta\""));
  RandomWeight random(MixedKind::kU4F16, 64, 256, 128);
  halley_kernels_weight* none = nullptr;
  halley_kernels_source source = source_of(random);
  source.group_size = 48;
  EXPECT_THAT(
      message_of(halley_kernels_pack(context.get(), &source, &none), HALLEY_KERNELS_UNSUPPORTED),
      HasSubstr("groups of 48 inputs"));
  random.codes[5] = 16;
  source = source_of(random);
  EXPECT_THAT(
      message_of(halley_kernels_pack(context.get(), &source, &none), HALLEY_KERNELS_WRONG_ARGUMENT),
      HasSubstr("expected codes from 0 to 15, got 16"));
  EXPECT_EQ(none, nullptr);
  random.codes[5] = 15;
  const float third = 1.0f / 3;
  const std::vector<float> thirds(128, third);
  halley_kernels_block_weight* no_blocks = nullptr;
  EXPECT_THAT(message_of(halley_kernels_pack_blocks(context.get(), 64, 256, random.codes.data(),
                                                    thirds.data(), &no_blocks),
                         HALLEY_KERNELS_WRONG_ARGUMENT),
              HasSubstr("expected finite values of 22 significant bits, got 0.33"));
  const halley_kernels::Weight weight(context, source_of(random));

  const DeviceMatrix x(DType::kF16, 3, 256), wrong_type(DType::kBf16, 3, 256),
      too_narrow(DType::kF16, 3, 248), crooked(DType::kF16, 3, 256, 3), y(DType::kF32, 3, 64),
      too_short(DType::kF32, 2, 64);
  const auto gemm = [&](const DeviceMatrix& from, const DeviceMatrix& to) {
    const halley_kernels_input input = {
        .x = view_of(from), .scales = nullptr, .sums = nullptr, .bias = nullptr};
    return message_of(
        halley_kernels_gemm(context.get(), weight.get(), &input, view_of(to), nullptr),
        HALLEY_KERNELS_WRONG_ARGUMENT);
  };
  EXPECT_THAT(gemm(wrong_type, y), HasSubstr("x: expected f16 for this weight, got bf16"));
  EXPECT_THAT(gemm(too_narrow, y), HasSubstr("x: expected 3 x 256, got 3 x 248"));
  EXPECT_THAT(gemm(crooked, y), HasSubstr("multiples of 16 bytes, got a stride of 518 bytes"));
  EXPECT_THAT(gemm(x, too_short), HasSubstr("y: expected 3 x 64, got 2 x 64"));
}

}  // namespace
