// Products of a few rows and codes: exact where numbers are whole, near where they are not.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/gemv/gemv.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"

namespace halley::cuda {
namespace {

struct Case {
  GemvShape shape;
  /// Zeros of groups differ; otherwise all are `zero`.
  bool has_zeros = false;
  float zero = 0;
};

size_t index_of(int64_t row, int64_t columns, int64_t column) {
  return static_cast<size_t>(row * columns + column);
}

/// A weight, and its numbers on the host.
class TestWeight {
 public:
  /// With `is_exact` scales are powers of two.
  TestWeight(const CudaContext& context, const Case& test, bool is_exact) : shape_(test.shape) {
    const int64_t N = shape_.N, K = shape_.K, groups = shape_.num_groups();
    std::mt19937 random(static_cast<uint32_t>(N * 31 + K + shape_.bits));
    const auto code_max = (1u << shape_.bits) - 1;
    const float shift = shape_.bits == 8 ? 128 : 0;
    std::vector<float> stored;
    for (int64_t i = 0; i < N * K; ++i) {
      // Both ends often.
      const auto pick = static_cast<uint32_t>(random()) % 8;
      const auto inner = static_cast<uint32_t>(random()) % (code_max + 1);
      const uint32_t code = pick == 0 ? 0 : pick == 1 ? code_max : inner;
      codes_.push_back(static_cast<float>(code));
      stored.push_back(static_cast<float>(code) - shift);
    }
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < N * groups; ++i) {
      const float size = std::ldexp(1.0f, -static_cast<int>(random() % 3));
      scales_.push_back(is_exact ? size : f16_to_f32(f32_to_f16(0.01f * normal(random))));
      zeros_.push_back(test.has_zeros ? static_cast<float>(random() % (2 * code_max + 1)) / 2
                                      : test.zero);
    }
    weight = GemvWeight(context, shape_, {.scales = scales_, .zeros = zeros_});
    // In two parts, of which the first has whole tiles.
    const int64_t middle = N > 32 ? 32 : 0;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, middle}, {middle, N}}) {
      if (begin == end) continue;
      DeviceMatrix rows(DType::kI8, end - begin, K);
      rows.set({stored.begin() + begin * K, stored.begin() + end * K});
      pack_gemv_rows(context, rows.matrix(), begin, weight);
      context.stream.synchronize();
    }
  }

  float scale(int64_t n, int64_t k) const { return scales_[group_index(n, k)]; }
  float zero(int64_t n, int64_t k) const { return zeros_[group_index(n, k)]; }
  float code(int64_t n, int64_t k) const { return codes_[index_of(n, shape_.K, k)]; }

  GemvWeight weight;

 private:
  size_t group_index(int64_t n, int64_t k) const {
    return index_of(n, shape_.num_groups(), shape_.is_grouped() ? k / shape_.group_size : 0);
  }

  GemvShape shape_;
  std::vector<float> codes_, scales_, zeros_;
};

std::vector<float> whole_numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(static_cast<int>(random() % 17)) - 8);
  }
  return values;
}

std::vector<DType> input_types(const GemvShape& shape) {
  if (shape.inputs == GemvInputs::kS8) return {DType::kI8};
  return {DType::kF16, DType::kBf16};
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const GemvInputs inputs : {GemvInputs::kNumbers, GemvInputs::kS8}) {
    for (const int bits : {8, 3, 2, 1}) {
      const float middle = static_cast<float>(1 << bits) / 2;
      // Odd sizes: part of a tile, of a piece, of a step.
      for (const auto& [N, K] :
           {std::pair<int64_t, int64_t>{1, 16}, {16, 128}, {77, 1040}, {129, 272}, {40, 912}}) {
        for (const int64_t group_size : {K, int64_t{32}, int64_t{64}, int64_t{128}, int64_t{256}}) {
          const GemvShape shape = {
              .inputs = inputs, .bits = bits, .N = N, .K = K, .group_size = group_size};
          if (!why_not_gemv(shape).empty()) continue;
          cases.push_back({shape, false, middle});
          cases.push_back({shape, true, 0});
        }
      }
      const GemvShape shape = {
          .inputs = inputs, .bits = bits, .N = 33, .K = 144, .group_size = 144};
      if (why_not_gemv(shape).empty()) cases.push_back({shape, false, 0.5f});
    }
  }
  return cases;
}

/// Inputs of which a warp of the kernel for one or two rows has more than it converts at once: with
/// all tiles at a time, and some at a time with room for the planes of all and without.
std::vector<Case> long_cases() {
  std::vector<Case> cases;
  for (const GemvInputs inputs : {GemvInputs::kNumbers, GemvInputs::kS8}) {
    for (const int bits : {2, 1}) {
      for (const auto& [N, K] :
           {std::pair<int64_t, int64_t>{72, 8336}, {160, 8336}, {150, 18576}}) {
        cases.push_back(
            {{.inputs = inputs, .bits = bits, .N = N, .K = K, .group_size = 128}, true, 0});
        cases.push_back(
            {{.inputs = inputs, .bits = bits, .N = N, .K = K, .group_size = K}, false, 1});
      }
    }
  }
  return cases;
}

std::string describe(const Case& test) {
  const GemvShape& shape = test.shape;
  return str(shape.bits, shape.inputs == GemvInputs::kS8 ? " bits, s8, " : " bits, ", shape.N, "x",
             shape.K, " groups of ", shape.group_size,
             test.has_zeros ? " with zeros" : str(" zero ", test.zero));
}

class GemvGpuTest : public GpuTest {
 protected:
  static constexpr int64_t kRowsOfAll = 35;

  /// Sums of all rows by f64, exact.
  static std::vector<double> multiply(const Case& test, const TestWeight& weight,
                                      const std::vector<float>& x) {
    const int64_t N = test.shape.N, K = test.shape.K;
    std::vector<double> sums(static_cast<size_t>(kRowsOfAll * N));
    std::vector<double> numbers(static_cast<size_t>(K));
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < K; ++k) {
        numbers[static_cast<size_t>(k)] =
            double{weight.scale(n, k)} * (weight.code(n, k) - weight.zero(n, k));
      }
      for (int64_t m = 0; m < kRowsOfAll; ++m) {
        sums[index_of(m, N, n)] =
            std::inner_product(numbers.begin(), numbers.end(), x.begin() + m * K, 0.0);
      }
    }
    return sums;
  }

  /// x of whole numbers: every sum is exact, and so is y in f32.
  void expect_exact(const Case& test, const TestWeight& weight, const std::vector<float>& values,
                    const std::vector<double>& sums, DType x_dtype) {
    const int64_t N = test.shape.N, K = test.shape.K;
    const bool is_s8 = x_dtype == DType::kI8;
    DeviceMatrix x(x_dtype, kRowsOfAll, K);
    x.set(values);
    std::vector<float> bias, x_scales;
    for (int64_t n = 0; n < N; ++n) bias.push_back(static_cast<float>(n % 5) - 2);
    for (int64_t m = 0; m < kRowsOfAll; ++m) x_scales.push_back(m % 2 == 0 ? 0.5f : 2.0f);
    const DeviceArray<float> device_bias(bias), device_scales(x_scales);
    const auto expect = [&](int64_t M, const std::string& plan, const auto& queue) {
      const DeviceMatrix y(DType::kF32, M, N, 3);
      queue({.x = ConstMatrix(x.matrix()).rows(0, M),
             .x_scales = is_s8 ? device_scales.data() : nullptr,
             .bias = device_bias.data()},
            y.matrix());
      const std::vector<float> got = y.get(stream_);
      ASSERT_TRUE(y.guards_are_intact(stream_));
      for (int64_t m = 0; m < M; ++m) {
        const double scale = is_s8 ? double{x_scales[static_cast<size_t>(m)]} : 1.0;
        for (int64_t n = 0; n < N; ++n) {
          ASSERT_EQ(got[index_of(m, N, n)],
                    sums[index_of(m, N, n)] * scale + bias[static_cast<size_t>(n)])
              << describe(test) << " of " << x_dtype << ", M " << M << ", " << plan << ", m " << m
              << ", n " << n;
        }
      }
    };
    for (const int tiles : {1, 2, 4}) {
      if (!has_gemv_kernel(test.shape, {tiles})) continue;
      for (const int64_t M :
           {int64_t{1}, int64_t{3}, int64_t{8}, int64_t{9}, int64_t{16}, kRowsOfAll}) {
        expect(M, str(tiles, " tiles"), [&](const GemvOperands& operands, Matrix y) {
          gemv_planned(context_, weight.weight, operands, {tiles}, y);
        });
        if (HasFatalFailure()) return;
      }
    }
    // By one block, which goes through its tiles some at a time, and by several.
    for (const int blocks : {1, 4, 132}) {
      for (const int64_t M : {1, 2}) {
        const GemvPlanePlan planes = plan_gemv_planes(test.shape, M, {.num_sms = blocks});
        if (planes.blocks > 0) {
          expect(M, str("planes, ", blocks, " blocks"),
                 [&](const GemvOperands& operands, Matrix y) {
                   gemv_by_planes(context_, weight.weight, operands, planes, y);
                 });
          if (HasFatalFailure()) return;
        }
        const GemvDigitPlan plan = plan_gemv_digits(test.shape, M, {.num_sms = blocks});
        if (plan.blocks == 0) continue;
        expect(M, str("digits, ", blocks, " blocks"), [&](const GemvOperands& operands, Matrix y) {
          gemv_by_digits(context_, weight.weight, operands, plan, y);
        });
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_F(GemvGpuTest, SumsWholeNumbersExactly) {
  for (const std::vector<Case>& cases : {all_cases(), long_cases()}) {
    for (const Case& test : cases) {
      const TestWeight weight(context_, test, true);
      const std::vector<float> values =
          whole_numbers(kRowsOfAll * test.shape.K, static_cast<uint32_t>(test.shape.K));
      const std::vector<double> sums = multiply(test, weight, values);
      for (const DType x_dtype : input_types(test.shape)) {
        expect_exact(test, weight, values, sums, x_dtype);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GemvGpuTest, GivesTheNumbersBack) {
  for (const Case& test : all_cases()) {
    const TestWeight weight(context_, test, false);
    for (const int64_t n : {int64_t{0}, test.shape.N / 2, test.shape.N - 1}) {
      const std::vector<float> got = fetch_gemv_numbers(stream_, weight.weight, n);
      for (int64_t k = 0; k < test.shape.K; ++k) {
        ASSERT_EQ(got[static_cast<size_t>(k)],
                  weight.scale(n, k) * (weight.code(n, k) - weight.zero(n, k)))
            << describe(test) << " n " << n << " k " << k;
      }
    }
  }
}

TEST_F(GemvGpuTest, DecodesToTheNumbers) {
  for (const Case& test : all_cases()) {
    if (test.shape.inputs == GemvInputs::kS8) continue;
    const TestWeight weight(context_, test, false);
    const int64_t N = test.shape.N, K = test.shape.K;
    for (const int64_t first : {int64_t{0}, N / 2}) {
      for (const DType dtype : {DType::kF16, DType::kBf16}) {
        const DeviceMatrix rows(dtype, N - first, K);
        decode_gemv_rows(context_, weight.weight, first, rows.matrix());
        const std::vector<float> got = rows.get(stream_);
        ASSERT_TRUE(rows.guards_are_intact(stream_));
        for (int64_t n = first; n < N; ++n) {
          for (int64_t k = 0; k < K; ++k) {
            const float number = weight.scale(n, k) * (weight.code(n, k) - weight.zero(n, k));
            const float expected = dtype == DType::kF16 ? f16_to_f32(f32_to_f16(number))
                                                        : bf16_to_f32(f32_to_bf16(number));
            ASSERT_EQ(got[index_of(n - first, K, k)], expected)
                << describe(test) << " " << dtype << " n " << n << " k " << k;
          }
        }
      }
    }
  }
}

/// Layers of usual size and numbers: against f64, the same bits again, and in every batch of one
/// kernel.
TEST_F(GemvGpuTest, IsNearAndTheSameInEveryBatch) {
  constexpr int64_t N = 528, K = 4096, M = 16;
  // Of a code's range: base and codes are sums of f32 before they are subtracted.
  constexpr double kSumError = 0x1p-20;
  for (const int bits : {8, 3, 2, 1}) {
    for (const int64_t group_size : {K, int64_t{128}}) {
      const Case test = {{GemvInputs::kNumbers, bits, N, K, group_size}, true, 0};
      const TestWeight weight(context_, test, false);
      for (const DType dtype : {DType::kF16, DType::kBf16}) {
        DeviceMatrix x(dtype, M, K);
        x.fill_normal(5);
        const std::vector<float> values = x.get(stream_);
        const DeviceMatrix y(dtype, M, N), again(dtype, M, N), few(dtype, 3, N);
        const DeviceMatrix alone(dtype, 1, N), two(dtype, 2, N);
        gemv(context_, weight.weight, {.x = x.matrix()}, y.matrix());
        gemv(context_, weight.weight, {.x = x.matrix()}, again.matrix());
        gemv(context_, weight.weight, {.x = ConstMatrix(x.matrix()).rows(4, 7)}, few.matrix());
        gemv(context_, weight.weight, {.x = ConstMatrix(x.matrix()).rows(5, 6)}, alone.matrix());
        gemv(context_, weight.weight, {.x = ConstMatrix(x.matrix()).rows(4, 6)}, two.matrix());
        const std::vector<float> got = y.get(stream_), of_few = few.get(stream_);
        const std::vector<float> of_one = alone.get(stream_), of_two = two.get(stream_);
        EXPECT_EQ(got, again.get(stream_));
        const double step = dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
        for (const int64_t m : {int64_t{0}, int64_t{5}, M - 1}) {
          for (int64_t n = 0; n < N; ++n) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < K; ++k) {
              const double of_code = double{values[index_of(m, K, k)]} * weight.scale(n, k);
              sum += of_code * (weight.code(n, k) - weight.zero(n, k));
              size += std::fabs(of_code) * (1 << bits);
            }
            const double error = step * std::fabs(sum) + kSumError * size;
            ASSERT_NEAR(got[index_of(m, N, n)], sum, error)
                << describe(test) << " " << dtype << " m " << m << " n " << n;
            if (m != 5) continue;
            ASSERT_NEAR(of_one[static_cast<size_t>(n)], sum, error)
                << describe(test) << " " << dtype << " alone, n " << n;
          }
        }
        for (int64_t n = 0; n < N; ++n) {
          ASSERT_EQ(of_few[index_of(1, N, n)], got[index_of(5, N, n)]) << n;
          ASSERT_EQ(of_two[index_of(1, N, n)], of_one[static_cast<size_t>(n)]) << n;
        }
      }
    }
  }
}

/// Each product reads what the one before wrote, and starts before that is done.
TEST_F(GemvGpuTest, WaitsForTheKernelBefore) {
  constexpr int64_t K = 1024;
  constexpr int kLength = 40;
  // The weight turns the order of its inputs by one.
  GemvWeight weight(context_,
                    {.inputs = GemvInputs::kNumbers, .bits = 8, .N = K, .K = K, .group_size = K},
                    {.scales = std::vector<float>(static_cast<size_t>(K), 1.0f),
                     .zeros = std::vector<float>(static_cast<size_t>(K), 128.0f)});
  DeviceMatrix codes(DType::kI8, K, K), first(DType::kF16, 8, K), second(DType::kF16, 8, K);
  std::vector<float> permutation(static_cast<size_t>(K * K)), values(static_cast<size_t>(8 * K));
  for (int64_t n = 0; n < K; ++n) permutation[index_of(n, K, (n + 1) % K)] = 1;
  codes.set(permutation);
  pack_gemv_rows(context_, codes.matrix(), 0, weight);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 61) - 30;
  for (const int64_t rows : {8, 2}) {
    first.set(values);
    const auto run = [&] {
      for (int i = 0; i < kLength; ++i) {
        const DeviceMatrix& x = i % 2 == 0 ? first : second;
        const DeviceMatrix& y = i % 2 == 0 ? second : first;
        gemv(context_, weight, {.x = ConstMatrix(x.matrix()).rows(0, rows)},
             y.matrix().rows(0, rows));
      }
    };
    const auto expect_turned = [&](int64_t count) {
      const std::vector<float> got = first.get(stream_);
      for (int64_t i = 0; i < rows * K; ++i) {
        const int64_t from = i / K * K + (i % K + count) % K;
        ASSERT_EQ(got[static_cast<size_t>(i)], values[static_cast<size_t>(from)]) << i;
      }
    };
    run();
    expect_turned(kLength);
    const CudaGraph graph = CudaGraph::capture(stream_, run);
    graph.launch(stream_);
    graph.launch(stream_);
    expect_turned(3 * kLength);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace halley::cuda
