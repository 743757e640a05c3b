#include "halley/kernels/gemm/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/panel_kernel.h"
#include "halley/kernels/gemm/testing/gemm_cases.h"
#include "halley/kernels/gemm/testing/gemm_reference.h"

namespace halley {
namespace {

// One chain accumulates up to 5632 terms in f32: each step rounds the partial sum by up to 2^-24 of
// it, which at random adds K / 6 * 2^-48, 3e-12, to the square of the error relative to a typical
// sum. The factor of 300 is for cases of few elements, where a sum may be far below typical.
constexpr double kGemmNmse = 1e-9;

const std::vector<DType> kDenseTypes = {DType::kF32, DType::kF16, DType::kBf16};

// A weight as a checkpoint stores it.
struct SourceTensor {
  std::vector<std::byte> bytes;
  TensorView view;
};

SourceTensor make_tensor(DType dtype, int64_t N, int64_t K, std::span<const float> values) {
  SourceTensor tensor;
  const auto element_bytes = static_cast<size_t>(bits_of(dtype) / 8);
  // One byte off, since a checkpoint's tensors need not be aligned.
  tensor.bytes.resize(values.size() * element_bytes + 1);
  std::byte* to = tensor.bytes.data() + 1;
  for (const float value : values) {
    const uint16_t half = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (dtype == DType::kF32) {
      std::memcpy(to, &value, sizeof(value));
    } else {
      std::memcpy(to, &half, sizeof(half));
    }
    to += element_bytes;
  }
  tensor.view = {tensor.bytes.data() + 1, dtype, {N, K}};
  return tensor;
}

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return normal(generator); });
  return values;
}

struct GemmData {
  PackedWeight weight;
  std::vector<float> x;
  std::vector<float> bias;
  GemmCase shape;

  ConstMatrix x_matrix() const { return f32_matrix(x.data(), shape.M, shape.K); }
  const float* bias_data() const { return shape.has_bias ? bias.data() : nullptr; }
};

GemmData make_gemm_data(DType dtype, const GemmCase& shape, uint32_t seed) {
  ThreadPool pool(1);
  ExecContext context{pool};
  GemmData data;
  data.shape = shape;
  const SourceTensor tensor =
      make_tensor(dtype, shape.N, shape.K, random_values(shape.N * shape.K, seed));
  data.weight = pack_dense(context, std::vector<TensorView>{tensor.view});
  data.x = random_values(shape.M * shape.K, seed + 1);
  data.bias = random_values(shape.N, seed + 2);
  return data;
}

// y of one kernel, every row between guards: [M][N] dense.
std::vector<float> run_kernel(const GemmKernel& kernel, const GemmData& data, int num_threads) {
  constexpr int64_t kGuard = 5;
  constexpr float kGuardValue = 1234.5f;
  const auto [M, N, K, has_bias] = data.shape;
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  const int64_t row_stride = N + kGuard;
  std::vector<float> storage(static_cast<size_t>(kGuard + M * row_stride), kGuardValue);
  Matrix y = f32_matrix(storage.data() + kGuard, M, N);
  y.row_stride = row_stride;
  for (int64_t m = 0; m < M; ++m) {
    std::fill_n(y.row<float>(m), N, std::numeric_limits<float>::quiet_NaN());
  }
  // Rows of x apart too, with NaN between them.
  const int64_t x_stride = K + 3;
  std::vector<float> x_storage(static_cast<size_t>(M * x_stride + 1),
                               std::numeric_limits<float>::quiet_NaN());
  ConstMatrix x = f32_matrix(static_cast<const float*>(x_storage.data()), M, K);
  x.row_stride = x_stride;
  for (int64_t m = 0; m < M; ++m) {
    std::copy_n(data.x.data() + m * K, K, x_storage.data() + m * x_stride);
  }
  kernel.launch(context, data.weight, data.bias_data(), x, y);
  for (int64_t i = -kGuard; i < M * row_stride; ++i) {
    if (i < 0 || i % row_stride >= N) {
      EXPECT_EQ(storage[static_cast<size_t>(i + kGuard)], kGuardValue)
          << kernel.name << " wrote outside";
    }
  }
  std::vector<float> dense;
  for (int64_t m = 0; m < M; ++m) {
    dense.insert(dense.end(), y.row<float>(m), y.row<float>(m) + N);
  }
  return dense;
}

// The reference, on x as the kernel sees it.
std::vector<float> run_reference(const GemmKernel& kernel, GemmData& data) {
  const std::vector<float> x = data.x;
  if (kernel.x_dtype == DType::kBf16) {
    for (float& value : data.x) value = bf16_to_f32(f32_to_bf16(value));
  }
  std::vector<float> y(static_cast<size_t>(data.shape.M * data.shape.N));
  gemm_reference(data.weight, data.bias_data(), data.x_matrix(),
                 f32_matrix(y.data(), data.shape.M, data.shape.N));
  data.x = x;
  return y;
}

double nmse(const std::vector<float>& values, const std::vector<float>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = double{values[i]} - double{expected[i]};
    error += difference * difference;
    size += double{expected[i]} * double{expected[i]};
  }
  return error == 0 ? 0 : error / size;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

std::vector<const GemmKernel*> kernels_for(const GemmData& data) {
  std::vector<const GemmKernel*> kernels;
  for (const GemmKernel& kernel : cpu_gemm_kernels()) {
    if (kernel.why_not(problem_of(data.weight)).empty()) kernels.push_back(&kernel);
  }
  return kernels;
}

// Runs the test's body once for every instruction set of Highway that was compiled in and that this
// machine has.
class OnEveryTarget : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, OnEveryTarget,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return hwy::TargetName(target.param); });

TEST_P(OnEveryTarget, EveryKernelMatchesTheReferenceOnEveryCase) {
  for (const GemmCase& shape : gemm_test_cases()) {
    for (const DType dtype : kDenseTypes) {
      GemmData data = make_gemm_data(dtype, shape, /*seed=*/1);
      const auto kernels = kernels_for(data);
      EXPECT_FALSE(kernels.empty()) << dtype;
      for (const GemmKernel* kernel : kernels) {
        const std::vector<float> y = run_kernel(*kernel, data, /*num_threads=*/2);
        EXPECT_LT(nmse(y, run_reference(*kernel, data)), kGemmNmse) << kernel->name << " " << shape;
      }
    }
  }
}

TEST_P(OnEveryTarget, RowsDoNotDependOnTheBatchOrTheThreads) {
  for (const DType dtype : kDenseTypes) {
    for (const GemmCase& shape : {GemmCase{17, 100, 1037, true}, GemmCase{210, 70, 600, false}}) {
      GemmData data = make_gemm_data(dtype, shape, /*seed=*/2);
      for (const GemmKernel* kernel : kernels_for(data)) {
        const std::vector<float> all = run_kernel(*kernel, data, 1);
        for (const int num_threads : {2, 3}) {
          EXPECT_TRUE(same_bits(run_kernel(*kernel, data, num_threads), all)) << kernel->name;
        }
        for (const int64_t M : {1, 2, 3, 5, 7, 8, 13}) {
          GemmData some = make_gemm_data(dtype, shape, /*seed=*/2);
          const int64_t first = 17 - M;
          some.shape.M = M;
          some.x.erase(some.x.begin(), some.x.begin() + first * shape.K);
          const std::vector<float> rows = run_kernel(*kernel, some, 2);
          const std::span<const float> expected(all.data() + first * shape.N, rows.size());
          EXPECT_TRUE(same_bits(rows, expected)) << kernel->name << " " << shape << " M=" << M;
        }
      }
    }
  }
}

// W has one column and x is 1, so that each y is one weight as the kernel widens it.
TEST_P(OnEveryTarget, EveryWeightPatternReachesTheSumExactly) {
  std::vector<uint16_t> patterns(65536);
  std::iota(patterns.begin(), patterns.end(), uint16_t{0});
  ThreadPool pool(1);
  ExecContext context{pool};
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    const TensorView view{reinterpret_cast<const std::byte*>(patterns.data()), dtype, {65536, 1}};
    for (const int64_t M : {1, 40}) {
      GemmData data;
      data.weight = pack_dense(context, std::vector<TensorView>{view});
      data.shape = {M, 65536, 1};
      data.x.assign(static_cast<size_t>(M), 1.0f);
      for (const GemmKernel* kernel : kernels_for(data)) {
        const std::vector<float> y = run_kernel(*kernel, data, 1);
        for (const uint16_t bits : patterns) {
          const float w = dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
          // The bf16 dot product takes subnormal values for zero.
          const bool is_zero =
              kernel->x_dtype == DType::kBf16 && std::fpclassify(w) == FP_SUBNORMAL;
          const float expected = is_zero ? 0.0f : w;
          const float actual = y[static_cast<size_t>(M - 1) * 65536 + bits];
          ASSERT_TRUE(actual == expected || (std::isnan(actual) && std::isnan(expected)))
              << kernel->name << " " << bits << ": " << actual << ", not " << expected;
        }
      }
    }
  }
}

TEST(GemmTable, NamesEveryKernelsReasonWhereNoneFits) {
  try {
    find_gemm_kernel({PackedLayout::kF32RowMajor, 10, 20});
    FAIL() << "expected UnsupportedError";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("gemm: expected a kernel for a f32_row_major "
                                                 "weight [10, 20], got none (gemm_bf16_amx: "));
    EXPECT_THAT(error.what(), testing::HasSubstr("gemm_f16_hwy: reads f16_panel, the weight is "
                                                 "f32_row_major"));
    EXPECT_THAT(error.what(), testing::HasSubstr("Pack the weight in a layout"));
  }
}

TEST(GemmTable, PrefersTilesThenTheDotProductWhereTheProcessorHasThem) {
  const GemmKernel& kernel = find_gemm_kernel({PackedLayout::kBf16PairPanel, 32, 32});
  const char* expected = "gemm_bf16_hwy";
  if (panel_gemm::has_avx512_bf16()) expected = "gemm_bf16_avx512";
  if (panel_gemm::amx_bf16_rejection().empty()) expected = "gemm_bf16_amx";
  EXPECT_STREQ(kernel.name, expected);
}

TEST(PackDense, RoundTripsEveryPattern) {
  ThreadPool pool(2);
  ExecContext context{pool};
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    std::vector<uint16_t> patterns(65536);
    std::iota(patterns.begin(), patterns.end(), uint16_t{0});
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{256, 256}, {65536 / 113, 113}}) {
      const TensorView view{reinterpret_cast<const std::byte*>(patterns.data()), dtype, {N, K}};
      const PackedWeight weight = pack_dense(context, std::vector<TensorView>{view});
      std::vector<float> row(static_cast<size_t>(K));
      for (int64_t n = 0; n < N; ++n) {
        unpack_row(weight, n, row.data());
        for (int64_t k = 0; k < K; ++k) {
          const uint16_t bits = patterns[static_cast<size_t>(n * K + k)];
          const float expected = dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
          ASSERT_EQ(std::bit_cast<uint32_t>(row[static_cast<size_t>(k)]),
                    std::bit_cast<uint32_t>(expected))
              << dtype << " " << bits;
        }
      }
    }
  }
}

TEST(PackDense, StacksPartsThatAreNoMultipleOfAPanel) {
  ThreadPool pool(3);
  ExecContext context{pool};
  for (const DType dtype : kDenseTypes) {
    for (const int64_t K : {1, 2, 33, 64}) {
      std::vector<SourceTensor> tensors;
      std::vector<TensorView> parts;
      std::vector<float> values;
      for (const int64_t rows : {5, 31, 0, 33, 1, 64, 7}) {
        const auto part = random_values(rows * K, static_cast<uint32_t>(rows + K));
        tensors.push_back(make_tensor(dtype, rows, K, part));
        values.insert(values.end(), part.begin(), part.end());
      }
      for (const SourceTensor& tensor : tensors) parts.push_back(tensor.view);
      const PackedWeight weight = pack_dense(context, parts);
      const SourceTensor whole = make_tensor(dtype, weight.N, K, values);
      const PackedWeight expected = pack_dense(context, std::vector<TensorView>{whole.view});
      ASSERT_EQ(weight.N, 141);
      std::vector<float> row(static_cast<size_t>(K)), expected_row(row);
      for (int64_t n = 0; n < weight.N; ++n) {
        unpack_row(weight, n, row.data());
        unpack_row(expected, n, expected_row.data());
        EXPECT_TRUE(same_bits(row, expected_row)) << dtype << " K=" << K << " n=" << n;
        const float first = values[static_cast<size_t>(n * K)];
        EXPECT_NEAR(row[0], first, std::abs(first) / 128);
      }
    }
  }
}

TEST(PackDense, PadsWithZeros) {
  ThreadPool pool(1);
  ExecContext context{pool};
  const std::vector<uint16_t> ones(33 * 3, 0x3F80);
  const TensorView view{reinterpret_cast<const std::byte*>(ones.data()), DType::kBf16, {33, 3}};
  const PackedWeight weight = pack_dense(context, std::vector<TensorView>{view});
  const auto words = weight.data.as<uint16_t>();
  ASSERT_EQ(words.size(), 64u * 4);
  EXPECT_EQ(std::count(words.begin(), words.end(), 0x3F80), 99);
  EXPECT_EQ(std::count(words.begin(), words.end(), 0), 64 * 4 - 99);
}

TEST(PackDense, RejectsOtherTypes) {
  try {
    dense_layout_for(DType::kF8E4M3);
    FAIL() << "expected UnsupportedError";
  } catch (const UnsupportedError& error) {
    EXPECT_STREQ(error.what(),
                 "weights: expected f16, bf16 or f32, got f8_e4m3. Convert the checkpoint to one "
                 "of these types.");
  }
}

}  // namespace
}  // namespace halley
