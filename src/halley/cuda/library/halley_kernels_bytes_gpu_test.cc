// Weights of bytes and experts through the C ABI, against f64 references.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/core/nested_float.h"
#include "halley/cuda/gemm/lane_order.h"
#include "halley/cuda/library/halley_kernels.h"
#include "halley/cuda/library/halley_kernels_cpp.h"
#include "halley/cuda/library/testing/kernels_views.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/testing/device_matrix.h"

namespace {

using halley::DeviceArray;
using halley::DeviceMatrix;
using halley::DType;
using halley::view_of;
using ::testing::HasSubstr;

/// Error of accumulators in parts of the sum of magnitudes: FP8 products keep 14 bits between
/// steps.
double sum_error(DType x_dtype) { return x_dtype == DType::kF8E4M3 ? 1e-3 : 1e-4; }

/// A random weight of a kind: its arrays, and its numbers [N, K] as x of `x_dtype` meets them.
struct TestWeight {
  TestWeight(halley_kernels_kind kind_of, int64_t outputs, int64_t inputs, bool has_zeros,
             uint32_t seed)
      : kind(kind_of), N(outputs), K(inputs) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> real(-1.7f, 1.7f);
    for (int64_t n = 0; n < N; ++n) {
      scales.push_back(static_cast<float>(1 + random() % 64) / 4096);
      if (has_zeros) zeros.push_back(static_cast<float>(random() % 257));
    }
    for (int64_t i = 0; i < N * K; ++i) {
      if (kind != HALLEY_KERNELS_NESTED) {
        codes.push_back(random_code(random));
        continue;
      }
      const uint16_t bits = halley::f32_to_f16(real(random));
      codes.push_back(static_cast<uint8_t>(bits));
      codes.push_back(static_cast<uint8_t>(bits >> 8));
    }
  }

  halley_kernels_source source() const {
    return {.kind = kind,
            .N = N,
            .K = K,
            .group_size = K,
            .codes = codes.data(),
            .scales = kind == HALLEY_KERNELS_NESTED ? nullptr : scales.data(),
            .zeros = zeros.empty() ? nullptr : zeros.data(),
            .group_scales = nullptr};
  }

  double number(int64_t n, int64_t k, DType x_dtype) const {
    const auto i = static_cast<size_t>(n * K + k), output = static_cast<size_t>(n);
    if (kind == HALLEY_KERNELS_FP8) return scales[output] * halley::e4m3_to_f32(codes[i]);
    if (kind != HALLEY_KERNELS_NESTED) {
      return scales[output] * (codes[i] - (zeros.empty() ? middle() : double{zeros[output]}));
    }
    const auto bits = static_cast<uint16_t>(codes[2 * i] | codes[2 * i + 1] << 8);
    if (x_dtype == DType::kF16) return halley::f16_to_f32(bits);
    return halley::e4m3_to_f32(halley::split_f16(bits).upper) * halley::kNestedUpperScale;
  }

  halley_kernels_kind kind;
  int64_t N, K;
  std::vector<uint8_t> codes;
  std::vector<float> scales, zeros;

 private:
  double middle() const { return kind == HALLEY_KERNELS_W8A8 ? 128 : 8; }
  uint8_t random_code(std::mt19937& random) const {
    if (kind == HALLEY_KERNELS_W8A8) return static_cast<uint8_t>(random() % 256);
    if (kind != HALLEY_KERNELS_FP8) return static_cast<uint8_t>(random() % 16);
    return static_cast<uint8_t>(random() % 127 | (random() % 2) << 7);
  }
};

/// Inputs on the GPU, and the numbers [M, K] that they stand for.
struct Inputs {
  Inputs(const halley_kernels::Context& context, const halley_kernels::Weight& weight, DType type,
         int64_t M, int64_t K, bool has_lane_order = false)
      : x(type, M, K),
        scales(std::vector<float>(static_cast<size_t>(M), NAN)),
        sums(std::vector<int32_t>(static_cast<size_t>(M), -1)) {
    const halley::CudaStream stream;
    if (type == DType::kF16) {
      x.fill_normal(7);
      numbers = x.get(stream);
      return;
    }
    DeviceMatrix from(DType::kF32, M, K);
    from.fill_normal(7);
    context.quantize(weight, view_of(from),
                     {.x = view_of(x),
                      .scales = scales.data(),
                      .sums = type == DType::kI8 ? sums.data() : nullptr},
                     nullptr);
    std::vector<float> of_rows(static_cast<size_t>(M));
    halley::check_cuda(cudaMemcpy(of_rows.data(), scales.data(), of_rows.size() * sizeof(float),
                                  cudaMemcpyDeviceToHost),
                       "copy of scales");
    const std::vector<float> stored = x.get(stream), exact = from.get(stream);
    numbers = stored;
    for (int64_t i = 0; i < M * K; ++i) {
      const int64_t m = i / K, k = i % K;
      const int64_t input =
          has_lane_order ? k / 128 * 128 + halley::cuda::lane_input(static_cast<int>(k % 128)) : k;
      const auto to = static_cast<size_t>(m * K + input);
      numbers[to] = stored[static_cast<size_t>(i)] * of_rows[static_cast<size_t>(m)];
      EXPECT_NEAR(numbers[to], exact[to],
                  of_rows[static_cast<size_t>(m)] * (type == DType::kI8 ? 0.51 : 16.1));
    }
    EXPECT_TRUE(x.guards_are_intact(stream));
  }

  halley_kernels_input with(const float* bias) const {
    return {.x = view_of(x), .scales = scales.data(), .sums = sums.data(), .bias = bias};
  }

  DeviceMatrix x;
  DeviceArray<float> scales;
  DeviceArray<int32_t> sums;
  std::vector<float> numbers;
};

struct BytesCase {
  halley_kernels_kind kind;
  DType x_dtype;
  bool has_zeros;
};

class HalleyKernelsBytes : public ::testing::TestWithParam<BytesCase> {};

TEST_P(HalleyKernelsBytes, GemmAgreesWithTheNumbers) {
  constexpr int64_t kK = 384;
  const auto [kind, x_dtype, has_zeros] = GetParam();
  const halley::CudaStream stream;
  const halley_kernels::Context context(0);
  for (const int64_t N : {int64_t{208}, int64_t{77}}) {
    const TestWeight plain(kind, N, kK, has_zeros, 3);
    const halley_kernels::Weight weight(context, plain.source());
    EXPECT_EQ(weight.needs_sums(), has_zeros);
    EXPECT_GE(weight.num_bytes(), plain.codes.size());
    EXPECT_FALSE(context.describe(weight, 16).empty());
    std::vector<float> bias(static_cast<size_t>(N));
    for (size_t n = 0; n < bias.size(); ++n) bias[n] = static_cast<float>(n % 9) / 4 - 1;
    const DeviceArray<float> device_bias(bias);
    for (const int64_t M : {1, 20, 77, 300}) {
      const Inputs inputs(context, weight, x_dtype, M, kK,
                          kind == HALLEY_KERNELS_NESTED && x_dtype == DType::kF8E4M3);
      for (const DType y_dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
        for (const bool has_bias : {false, true}) {
          const DeviceMatrix y(y_dtype, M, N);
          context.gemm(weight, inputs.with(has_bias ? device_bias.data() : nullptr), view_of(y),
                       nullptr);
          halley::check_cuda(cudaDeviceSynchronize(), "the GEMM");
          const std::vector<float> got = y.get(stream);
          EXPECT_TRUE(y.guards_are_intact(stream));
          const double rounding = y_dtype == DType::kF32   ? 0
                                  : y_dtype == DType::kF16 ? 0x1p-11
                                                           : 0x1p-8;
          for (int64_t m = 0; m < M; ++m) {
            for (int64_t n = 0; n < N; ++n) {
              double sum = 0, magnitude = 0;
              for (int64_t k = 0; k < kK; ++k) {
                const double term =
                    inputs.numbers[static_cast<size_t>(m * kK + k)] * plain.number(n, k, x_dtype);
                sum += term;
                magnitude += std::abs(term);
              }
              const double added = has_bias ? double{bias[static_cast<size_t>(n)]} : 0;
              // cuBLASLt may round the sum before it adds the bias.
              ASSERT_NEAR(got[static_cast<size_t>(m * N + n)], sum + added,
                          sum_error(x_dtype) * magnitude +
                              rounding * (std::abs(sum) + 2 * std::abs(added)) + 1e-6)
                  << "kind " << kind << ", " << M << " x " << N << " of " << y_dtype << ", row "
                  << m << ", output " << n << (has_bias ? ", bias" : "");
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HalleyKernelsBytes,
                         ::testing::Values(BytesCase{HALLEY_KERNELS_W8A8, DType::kI8, false},
                                           BytesCase{HALLEY_KERNELS_W8A8, DType::kI8, true},
                                           BytesCase{HALLEY_KERNELS_FP8, DType::kF8E4M3, false},
                                           BytesCase{HALLEY_KERNELS_NESTED, DType::kF16, false},
                                           BytesCase{HALLEY_KERNELS_NESTED, DType::kF8E4M3,
                                                     false}));

TEST(HalleyKernelsWorkspace, ASmallOneTakesManyRowsInPieces) {
  constexpr int64_t kN = 8192, kK = 256, kM = 1100;
  const TestWeight plain(HALLEY_KERNELS_W8A8, kN, kK, false, 5);
  const halley::CudaStream stream;
  std::vector<std::vector<float>> results;
  for (const size_t mebibytes : {64u, 256u}) {
    const halley_kernels::Context context(0, mebibytes << 20);
    const halley_kernels::Weight weight(context, plain.source());
    const Inputs inputs(context, weight, DType::kI8, kM, kK);
    const DeviceMatrix y(DType::kF16, kM, kN);
    context.gemm(weight, inputs.with(nullptr), view_of(y), nullptr);
    halley::check_cuda(cudaDeviceSynchronize(), "the GEMM");
    results.push_back(y.get(stream));
  }
  EXPECT_EQ(results[0], results[1]);  // s32 accumulators are exact
}

TEST(HalleyKernelsPdl, HasTheSameBits) {
  constexpr int64_t kN = 1024, kM = 16;
  const halley::CudaStream stream;
  const halley_kernels::Context context(0);
  const TestWeight plain(HALLEY_KERNELS_NESTED, kN, kN, false, 6);
  const halley_kernels::Weight weight(context, plain.source());
  DeviceMatrix x(DType::kF16, kM, kN);
  x.fill_normal(7, 0.01f);
  std::vector<std::vector<float>> results;
  for (const bool is_allowed : {false, true}) {
    context.allow_pdl(is_allowed);
    const DeviceMatrix between(DType::kF16, kM, kN), y(DType::kF16, kM, kN);
    const halley_kernels_input first = {
        .x = view_of(x), .scales = nullptr, .sums = nullptr, .bias = nullptr};
    const halley_kernels_input second = {
        .x = view_of(between), .scales = nullptr, .sums = nullptr, .bias = nullptr};
    for (int i = 0; i < 20; ++i) {
      context.gemm(weight, first, view_of(between), nullptr);
      context.gemm(weight, second, view_of(y), nullptr);
    }
    halley::check_cuda(cudaDeviceSynchronize(), "the GEMMs");
    results.push_back(y.get(stream));
  }
  EXPECT_EQ(results[0], results[1]);
}

double silu(double x) { return x / (1 + std::exp(-x)); }

struct ExpertsCase {
  halley_kernels_kind kind;
  DType x_dtype;
};

class HalleyKernelsExperts : public ::testing::TestWithParam<ExpertsCase> {};

/// Slots of three experts, of which the second has none, with gathered rows.
TEST_P(HalleyKernelsExperts, AgreeWithTheNumbers) {
  constexpr int64_t kN = 128, kK = 256, kM = 9, kExperts = 3;
  const auto [kind, x_dtype] = GetParam();
  const halley::CudaStream stream;
  const halley_kernels::Context context(0);
  std::vector<TestWeight> plain;
  std::vector<std::unique_ptr<halley_kernels::Weight>> weights;
  std::vector<const halley_kernels::Weight*> pointers;
  for (uint32_t e = 0; e < kExperts; ++e) {
    plain.emplace_back(kind, kN, kK, /*has_zeros=*/kind == HALLEY_KERNELS_W8A8, 10 + e);
    weights.push_back(std::make_unique<halley_kernels::Weight>(context, plain.back().source()));
    pointers.push_back(weights.back().get());
  }
  const std::vector<int32_t> begin = {0, 4, 4, 11}, rows = {0, 3, 5, 8, 1, 2, 3, 4, 6, 7, 8};
  const auto num_slots = static_cast<int64_t>(rows.size());
  const DeviceArray<int32_t> device_begin(begin), device_rows(rows);
  const Inputs inputs(context, *weights[0], x_dtype, kM, kK);
  std::vector<float> bias(kN);
  for (size_t n = 0; n < bias.size(); ++n) bias[n] = static_cast<float>(n % 5) / 8;
  const DeviceArray<float> device_bias(bias);
  for (const bool is_gated : {false, true}) {
    const halley_kernels::Experts experts(context, pointers, is_gated,
                                          std::vector<const float*>(kExperts, device_bias.data()));
    const int64_t num_outputs = is_gated ? kN / 2 : kN;
    const DeviceMatrix y(DType::kF16, num_slots, num_outputs);
    context.grouped_gemm(
        experts, inputs.with(nullptr),
        {.expert_begin = device_begin.data(),
         .slot_rows = device_rows.data(),
         .activation = is_gated ? HALLEY_KERNELS_SILU : HALLEY_KERNELS_NO_ACTIVATION},
        view_of(y), nullptr);
    halley::check_cuda(cudaDeviceSynchronize(), "the grouped GEMM");
    const std::vector<float> got = y.get(stream);
    EXPECT_TRUE(y.guards_are_intact(stream));
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      const TestWeight& w = plain[slot < begin[1] ? 0 : 2];
      const int64_t row = rows[static_cast<size_t>(slot)];
      double error = 0;
      const auto output = [&](int64_t n) {
        double sum = bias[static_cast<size_t>(n)];
        for (int64_t k = 0; k < kK; ++k) {
          const double term =
              inputs.numbers[static_cast<size_t>(row * kK + k)] * w.number(n, k, x_dtype);
          sum += term;
          error += sum_error(x_dtype) * std::abs(term);
        }
        return sum;
      };
      for (int64_t n = 0; n < num_outputs; ++n) {
        error = 1e-4;
        double expected = output(n);
        if (is_gated) {
          const double gate = expected, other = output(num_outputs + n);
          expected = silu(gate) * other;
          error *= 1.2 * (1 + std::abs(gate) + std::abs(other));
        }
        ASSERT_NEAR(got[static_cast<size_t>(slot * num_outputs + n)], expected,
                    error + 0x1p-11 * std::abs(expected))
            << "kind " << kind << ", slot " << slot << ", output " << n
            << (is_gated ? ", gated" : "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HalleyKernelsExperts,
                         ::testing::Values(ExpertsCase{HALLEY_KERNELS_W4A16_F16, DType::kF16},
                                           ExpertsCase{HALLEY_KERNELS_W4A8, DType::kI8},
                                           ExpertsCase{HALLEY_KERNELS_W8A8, DType::kI8},
                                           ExpertsCase{HALLEY_KERNELS_FP8, DType::kF8E4M3}));

std::string message_of(halley_kernels_status status, halley_kernels_status expected) {
  EXPECT_EQ(status, expected);
  return halley_kernels_last_error();
}

TEST(HalleyKernelsBytesRejections, NameWhatIsWrong) {
  const halley_kernels::Context context(0);
  halley_kernels_weight* none = nullptr;
  const auto pack = [&](const halley_kernels_source& source, halley_kernels_status status) {
    return message_of(halley_kernels_pack(context.get(), &source, &none), status);
  };
  const TestWeight fp8(HALLEY_KERNELS_FP8, 16, 128, false, 1);
  halley_kernels_source source = fp8.source();
  source.K = source.group_size = 120;
  EXPECT_THAT(pack(source, HALLEY_KERNELS_UNSUPPORTED), HasSubstr("a multiple of 16, got 120"));
  source = fp8.source();
  source.group_size = 64;
  EXPECT_THAT(pack(source, HALLEY_KERNELS_WRONG_ARGUMENT), HasSubstr("group_size: expected K"));
  TestWeight nan = fp8;
  nan.codes[7] = 0xFF;
  EXPECT_THAT(pack(nan.source(), HALLEY_KERNELS_WRONG_ARGUMENT), HasSubstr("got NaN"));
  TestWeight nested(HALLEY_KERNELS_NESTED, 16, 128, false, 1);
  nested.codes[2 * 130 + 1] = 0x40;  // 2.0 and more, of output 1, input 2
  EXPECT_THAT(pack(nested.source(), HALLEY_KERNELS_UNSUPPORTED), HasSubstr("output 1, input 2"));
  EXPECT_EQ(none, nullptr);

  const halley_kernels::Weight weight(context, fp8.source());
  const TestWeight other(HALLEY_KERNELS_FP8, 32, 128, false, 1);
  const halley_kernels::Weight larger(context, other.source());
  const std::vector<const halley_kernels_weight*> both = {weight.get(), larger.get()};
  halley_kernels_experts* experts = nullptr;
  EXPECT_THAT(
      message_of(halley_kernels_join_experts(context.get(), both.data(), 2, nullptr, 0, &experts),
                 HALLEY_KERNELS_WRONG_ARGUMENT),
      HasSubstr("another form for expert 1"));
  EXPECT_THAT(
      message_of(halley_kernels_join_experts(context.get(), both.data(), 1, nullptr, 1, &experts),
                 HALLEY_KERNELS_WRONG_ARGUMENT),
      HasSubstr("a multiple of 32, got 16 outputs"));
  EXPECT_EQ(experts, nullptr);
}

}  // namespace
