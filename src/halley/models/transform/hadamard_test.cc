#include "halley/models/transform/hadamard.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "halley/core/thread_pool.h"

namespace halley {
namespace {

// f32 accumulation of n terms near 1 / sqrt(n).
constexpr double kTolerance = 2e-6;

class Hadamard : public testing::TestWithParam<int64_t> {
 protected:
  ThreadPool pool_{2};
  ExecContext context_{pool_};
};

/// H itself: the identity's rows transformed.
std::vector<float> matrix_of(ExecContext& context, int64_t n) {
  std::vector<float> h(static_cast<size_t>(n * n), 0.0f);
  for (int64_t i = 0; i < n; ++i) h[static_cast<size_t>(i * n + i)] = 1.0f;
  apply_hadamard(context, f32_matrix(h.data(), n, n));
  return h;
}

TEST_P(Hadamard, HasEntriesOfOneSizeAndOrthogonalRows) {
  const int64_t n = GetParam();
  ASSERT_TRUE(has_hadamard(n));
  const std::vector<float> h = matrix_of(context_, n);
  const double size = 1 / std::sqrt(static_cast<double>(n));
  for (const float entry : h) ASSERT_NEAR(std::abs(entry), size, 1e-7);
  for (int64_t a = 0; a < n; ++a) {
    for (int64_t b = 0; b < n; ++b) {
      double sum = 0;
      for (int64_t k = 0; k < n; ++k) {
        sum += static_cast<double>(h[static_cast<size_t>(a * n + k)]) *
               static_cast<double>(h[static_cast<size_t>(b * n + k)]);
      }
      ASSERT_NEAR(sum, a == b ? 1 : 0, kTolerance) << n << ": " << a << ", " << b;
    }
  }
}

TEST_P(Hadamard, MultipliesRowsByTheMatrix) {
  const int64_t n = GetParam(), M = 19, stride = n + 3;
  const std::vector<float> h = matrix_of(context_, n);
  std::mt19937 random(static_cast<uint32_t>(n));
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(M * stride));
  for (float& value : x) value = normal(random);
  std::vector<float> y = x;
  Matrix rows = f32_matrix(y.data(), M, n);
  rows.row_stride = stride;
  apply_hadamard(context_, rows);
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        sum += static_cast<double>(x[static_cast<size_t>(m * stride + i)]) *
               static_cast<double>(h[static_cast<size_t>(i * n + j)]);
      }
      ASSERT_NEAR(y[static_cast<size_t>(m * stride + j)], sum, kTolerance * 8);
    }
    for (int64_t j = n; j < stride; ++j) {  // what lies between the rows
      const auto index = static_cast<size_t>(m * stride + j);
      ASSERT_EQ(y[index], x[index]);
    }
  }
}

TEST_P(Hadamard, HasTheSameBitsForAnyThreads) {
  const int64_t n = GetParam(), M = 33;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(M * n));
  for (float& value : x) value = normal(random);
  std::vector<float> alone = x;
  apply_hadamard(context_, f32_matrix(x.data(), M, n));
  ThreadPool one(1);
  ExecContext single{one};
  apply_hadamard(single, f32_matrix(alone.data(), M, n));
  EXPECT_EQ(x, alone);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Hadamard,
                         testing::Values(1, 2, 4, 12, 20, 24, 28, 36, 40, 44, 60, 64, 72, 96, 112,
                                         128));

TEST(HadamardSizes, AreThoseWithABuiltInFactor) {
  for (const int64_t n : {576, 896, 960, 1408, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 8192}) {
    EXPECT_TRUE(has_hadamard(n)) << n;
  }
  for (const int64_t n : {-4, 0, 3, 6, 7, 10, 14, 30, 52, 100, 4095, 6656}) {
    EXPECT_FALSE(has_hadamard(n)) << n;
  }
}

}  // namespace
}  // namespace halley
