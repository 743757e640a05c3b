// Both kernels of the weights that hold two precisions: bit for bit those of f16, and the reference
// on the upper bytes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/float16.h"
#include "halley/core/float8.h"
#include "halley/core/nested_float.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/gemm.h"
#include "halley/kernels/gemm/kernel_choice.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/kernels/gemm/testing/gemm_cases.h"
#include "halley/kernels/gemm/testing/gemm_reference.h"
#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/kernels/testing/simd_targets.h"

namespace halley {
namespace {

const GemmKernel& kernel_of(const PackedWeight& weight, Precision precision) {
  const GemmProblem problem = problem_of(weight);
  return find_gemm_kernel(precision == Precision::kLow ? low_problem(problem) : problem);
}

/// Packs f16 weights [N, K], by the words that describe the layout.
PackedWeight pack_nested(const std::vector<uint16_t>& bits, int64_t N, int64_t K) {
  PackedWeight weight;
  weight.layout = PackedLayout::kNestedF16Quad;
  weight.N = N;
  weight.K = K;
  allocate_quantized(&weight);
  auto bytes = weight.data.as<uint8_t>();
  std::fill(bytes.begin(), bytes.end(), uint8_t{0});
  const auto panel_bytes =
      static_cast<int64_t>(packed_bytes(PackedLayout::kNestedF16Quad, kPanelRows, K));
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      const NestedFloat nested = split_f16(bits[static_cast<size_t>(n * K + k)]);
      const int64_t index = n / kPanelRows * panel_bytes + k / 32 * 1024 + k % 32 / 4 * 128 +
                            n % kPanelRows * 4 + k % 4;
      bytes[static_cast<size_t>(index)] = nested.upper;
      bytes[static_cast<size_t>(index + panel_bytes / 2)] = nested.lower;
    }
  }
  return weight;
}

/// Any values of magnitude at most 1.75, subnormal ones and both zeros too.
std::vector<uint16_t> random_weights(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.2f);
  std::vector<uint16_t> bits;
  for (int64_t i = 0; i < count; ++i) {
    const auto any = static_cast<uint16_t>(random());
    const uint16_t half = f32_to_f16(std::clamp(normal(random), -1.75f, 1.75f));
    bits.push_back(random() % 4 == 0 && can_split_f16(any) ? any : half);
  }
  return bits;
}

struct NestedData {
  GemmCase shape;
  PackedWeight nested, dense;
  GuardedMatrix x;
  std::vector<float> bias;

  NestedData(const GemmCase& of, uint32_t seed)
      : shape(of), x(of.M, of.K, /*row_gap=*/3), bias(static_cast<size_t>(of.N)) {
    const std::vector<uint16_t> bits = random_weights(of.N * of.K, seed);
    nested = pack_nested(bits, of.N, of.K);
    ThreadPool pool(1);
    ExecContext context{pool};
    const TensorView view = {
        reinterpret_cast<const std::byte*>(bits.data()), DType::kF16, {of.N, of.K}};
    dense = pack_dense(context, {&view, 1});
    x.fill_normal(seed + 1);
    std::mt19937 random(seed + 2);
    std::normal_distribution<float> normal;
    for (float& value : bias) value = normal(random);
  }
  const float* bias_data() const { return shape.has_bias ? bias.data() : nullptr; }
};

GuardedMatrix run_kernel(const GemmKernel& kernel, const PackedWeight& weight, NestedData& data,
                         int64_t row_begin, int64_t row_end, int num_threads) {
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  GuardedMatrix y(row_end - row_begin, weight.N);
  kernel.launch(context, weight, data.bias_data(), data.x.matrix().rows(row_begin, row_end),
                y.matrix());
  EXPECT_TRUE(y.guards_are_intact()) << kernel.name << " " << data.shape << " wrote outside";
  return y;
}

TEST(NestedGemm, FullPrecisionHasTheBitsOfF16OnEveryCase) {
  for (const GemmCase& shape : gemm_test_cases()) {
    NestedData data(shape, /*seed=*/1);
    const GemmKernel& nested = kernel_of(data.nested, Precision::kFull);
    const GemmKernel& dense = find_gemm_kernel(problem_of(data.dense));
    EXPECT_STREQ(nested.name, "gemm_nestedf16_hwy");
    EXPECT_STREQ(dense.name, "gemm_f16_hwy");
    for_each_simd_target([&](const char* target) {
      GuardedMatrix got = run_kernel(nested, data.nested, data, 0, shape.M, 2);
      GuardedMatrix expected = run_kernel(dense, data.dense, data, 0, shape.M, 2);
      for (int64_t m = 0; m < shape.M; ++m) {
        ASSERT_TRUE(got.row_equals(m, expected.row(m))) << target << " " << shape << " row " << m;
      }
    });
  }
}

// W has one column and x is 1, so that each y is one weight.
TEST(NestedGemm, EveryNumberReachesTheSumExactlyInBothPrecisions) {
  std::vector<uint16_t> bits;
  for (int pattern = 0; pattern < 65536; ++pattern) {
    if (can_split_f16(static_cast<uint16_t>(pattern)))
      bits.push_back(static_cast<uint16_t>(pattern));
  }
  const auto N = static_cast<int64_t>(bits.size());
  for (const int64_t column : {0, 1, 2, 3, 6}) {
    const int64_t K = column + 1;
    std::vector<uint16_t> matrix(static_cast<size_t>(N * K), 0);
    for (int64_t n = 0; n < N; ++n) {
      matrix[static_cast<size_t>(n * K + column)] = bits[static_cast<size_t>(n)];
    }
    const PackedWeight weight = pack_nested(matrix, N, K);
    const std::vector<float> x(static_cast<size_t>(2 * K), 1.0f);
    std::vector<float> y(static_cast<size_t>(2 * N));
    ThreadPool pool(1);
    ExecContext context{pool};
    for_each_simd_target([&](const char* target) {
      for (const Precision precision : {Precision::kFull, Precision::kLow}) {
        for (const int64_t M : {1, 2}) {
          kernel_of(weight, precision)
              .launch(context, weight, nullptr, f32_matrix(x.data(), M, K),
                      f32_matrix(y.data(), M, N));
          for (int64_t n = 0; n < N; ++n) {
            const float w = f16_to_f32(bits[static_cast<size_t>(n)]);
            const float expected =
                precision == Precision::kFull ? w : e4m3_to_f32(f32_to_e4m3(w * 256.0f)) / 256.0f;
            ASSERT_EQ(y[static_cast<size_t>((M - 1) * N + n)], expected)
                << target << " " << precision << " precision, k " << column << " n " << n;
          }
        }
      }
    });
  }
}

void expect_close(const GemmKernel& kernel, const char* target, NestedData& data,
                  GuardedMatrix& expected) {
  const auto [M, N, K, has_bias] = data.shape;
  GuardedMatrix y = run_kernel(kernel, data.nested, data, 0, M, 2);
  std::vector<float> x(static_cast<size_t>(K)), w(x);
  // Some of many rows suffice: reading the weight and rounding the row are slow.
  const int64_t row_step = M > 40 ? 9 : 1, output_step = M > 40 ? 7 : 1;
  for (int64_t m = 0; m < M; m += row_step) {
    round_activations(params_of(data.nested, Precision::kLow), {data.x.row(m), x.size()}, x.data());
    for (int64_t n = 0; n < N; n += output_step) {
      unpack_row(data.nested, n, w.data(), Precision::kLow);
      double size = has_bias ? std::abs(double{data.bias[static_cast<size_t>(n)]}) : 0.0;
      for (size_t k = 0; k < x.size(); ++k) size += std::abs(double{x[k]} * double{w[k]});
      const double error = std::abs(double{y.row(m)[n]} - double{expected.row(m)[n]});
      // Written so that NaN fails.
      ASSERT_TRUE(error <= kernel.error_max * size)
          << target << " " << data.shape << ": y[" << m << "][" << n << "] is " << y.row(m)[n]
          << ", not " << expected.row(m)[n];
    }
  }
}

TEST(NestedGemm, LowPrecisionMatchesTheReferenceOnEveryCase) {
  for (const GemmCase& shape : gemm_test_cases()) {
    NestedData data(shape, /*seed=*/2);
    const GemmKernel& kernel = kernel_of(data.nested, Precision::kLow);
    EXPECT_STREQ(kernel.name, "gemm_nestedf8_hwy");
    GuardedMatrix expected(shape.M, shape.N);
    gemm_reference(data.nested, data.bias_data(), data.x.matrix(), expected.matrix(),
                   Precision::kLow);
    for_each_simd_target([&](const char* target) { expect_close(kernel, target, data, expected); });
  }
}

// Low precision is e4m3 times e4m3, computed without the reference's own reading of the layout.
TEST(NestedGemm, TheReferenceIsE4m3TimesE4m3) {
  constexpr int64_t N = 37, K = 45;
  NestedData data({1, N, K}, /*seed=*/3);
  const std::vector<uint16_t> bits = random_weights(N * K, 3);
  float largest = 0;
  for (int64_t k = 0; k < K; ++k) largest = std::max(largest, std::fabs(data.x.row(0)[k]));
  GuardedMatrix y(1, N);
  gemm_reference(data.nested, nullptr, data.x.matrix(), y.matrix(), Precision::kLow);
  for (int64_t n = 0; n < N; ++n) {
    double sum = 0, size = 0;
    for (int64_t k = 0; k < K; ++k) {
      const float w = f16_to_f32(bits[static_cast<size_t>(n * K + k)]);
      const double code = e4m3_to_f32(f32_to_e4m3(data.x.row(0)[k] * (448.0f / largest)));
      const double term = code * e4m3_to_f32(f32_to_e4m3(w * 256.0f));
      sum += term;
      size += std::abs(term);
    }
    const double scale = double{largest} / 448.0 / 256.0;
    EXPECT_NEAR(y.row(0)[n], sum * scale, 1e-6 * size * scale) << n;
  }
}

TEST(NestedGemm, RowsDoNotDependOnTheBatchOrTheThreads) {
  constexpr int64_t kRows = 33;
  NestedData data({kRows, 70, 397, true}, /*seed=*/5);
  for_each_simd_target([&](const char* target) {
    for (const Precision precision : {Precision::kFull, Precision::kLow}) {
      const GemmKernel& kernel = kernel_of(data.nested, precision);
      GuardedMatrix all = run_kernel(kernel, data.nested, data, 0, kRows, 1);
      const auto expect_same = [&](int64_t begin, int64_t end, int num_threads) {
        GuardedMatrix some = run_kernel(kernel, data.nested, data, begin, end, num_threads);
        for (int64_t m = begin; m < end; ++m) {
          EXPECT_TRUE(some.row_equals(m - begin, all.row(m)))
              << kernel.name << " on " << target << " rows " << begin << " to " << end << " with "
              << num_threads << " threads";
        }
      };
      expect_same(0, kRows, 3);
      for (const int64_t M : {1, 2, 5, 9, 17}) expect_same(kRows - M - 1, kRows - 1, 2);
    }
  });
}

TEST(NestedGemm, ANanInARowStaysInTheRow) {
  NestedData data({3, 33, 130}, /*seed=*/6);
  data.x.row(1)[129] = std::numeric_limits<float>::quiet_NaN();
  for (const Precision precision : {Precision::kFull, Precision::kLow}) {
    GuardedMatrix y = run_kernel(kernel_of(data.nested, precision), data.nested, data, 0, 3, 1);
    for (int64_t n = 0; n < 33; ++n) {
      EXPECT_TRUE(std::isfinite(y.row(0)[n]) && std::isfinite(y.row(2)[n])) << precision;
      EXPECT_TRUE(std::isnan(y.row(1)[n])) << precision;
    }
  }
}

TEST(NestedGemm, LowPrecisionReadsTheUpperBytesAlone) {
  NestedData data({5, 64, 96}, /*seed=*/7);
  const GemmKernel& kernel = kernel_of(data.nested, Precision::kLow);
  GuardedMatrix before = run_kernel(kernel, data.nested, data, 0, 5, 1);
  const size_t panel_bytes = packed_bytes(data.nested.layout, kPanelRows, 96);
  for (size_t panel = 0; panel < 2; ++panel) {
    std::memset(data.nested.data.data() + panel * panel_bytes + panel_bytes / 2, 0x55,
                panel_bytes / 2);
  }
  GuardedMatrix after = run_kernel(kernel, data.nested, data, 0, 5, 1);
  for (int64_t m = 0; m < 5; ++m) EXPECT_TRUE(after.row_equals(m, before.row(m)));
}

TEST(NestedLayout, TakesTheBytesOfF16UpToThePaddingOfK) {
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{1, 1}, {32, 32}, {100, 4096}, {33, 45}}) {
    const size_t f16 = packed_bytes(PackedLayout::kF16Panel, N, (K + 31) / 32 * 32);
    EXPECT_EQ(packed_bytes(PackedLayout::kNestedF16Quad, N, K), f16) << N << " x " << K;
  }
  const PackedWeight weight = pack_nested(random_weights(40 * 64, 8), 40, 64);
  EXPECT_EQ(weight.num_bytes(), packed_bytes(PackedLayout::kF16Panel, 40, 64));
}

TEST(NestedChoice, HasAKernelForEachPrecision) {
  const GemmProblem full = {.w_layout = PackedLayout::kNestedF16Quad, .N = 64, .K = 32};
  EXPECT_STREQ(choose_gemm_kernel(full).kernel->name, "gemm_nestedf16_hwy");
  EXPECT_STREQ(choose_gemm_kernel(low_problem(full)).kernel->name, "gemm_nestedf8_hwy");
  EXPECT_THAT(choose_gemm_kernel(low_problem(full)).rejections, testing::IsEmpty());
}

TEST(NestedChoice, AForcedKernelLeavesTheOtherPrecisionAlone) {
  const GemmProblem full = {.w_layout = PackedLayout::kNestedF16Quad, .N = 64, .K = 32};
  for (const char* name : {"gemm_nestedf16_hwy", "gemm_nestedf8_hwy"}) {
    KernelDemands demands;
    demands.forced = name;
    EXPECT_STREQ(choose_gemm_kernel(full, demands).kernel->name, "gemm_nestedf16_hwy");
    EXPECT_STREQ(choose_gemm_kernel(low_problem(full), demands).kernel->name, "gemm_nestedf8_hwy");
  }
}

TEST(NestedChoice, ARequirementMustNameBoth) {
  const GemmProblem full = {.w_layout = PackedLayout::kNestedF16Quad, .N = 64, .K = 32};
  KernelDemands demands;
  demands.required = {"gemm_nestedf16_hwy"};
  EXPECT_NO_THROW(choose_gemm_kernel(full, demands));
  EXPECT_THAT([&] { choose_gemm_kernel(low_problem(full), demands); },
              testing::ThrowsMessage<InputError>(testing::HasSubstr(
                  "to run a nested_f16_quad weight [64, 32] in low precision, got "
                  "gemm_nestedf8_hwy")));
}

TEST(NestedChoice, SaysThatAKernelIsForTheOtherPrecision) {
  const GemmProblem full = {.w_layout = PackedLayout::kNestedF16Quad, .N = 64, .K = 32};
  const GemmKernel& low = find_gemm_kernel(low_problem(full));
  EXPECT_EQ(low.why_not(full), "multiplies in low precision");
  EXPECT_EQ(find_gemm_kernel(full).why_not(low_problem(full)), "multiplies in full precision");
}

}  // namespace
}  // namespace halley
