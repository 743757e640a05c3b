#include "halley/kernels/linalg/linalg.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"

namespace halley {
namespace {

constexpr float kGuard = -12345.0f;
// A chain of K fused multiply-adds errs by at most K * 2^-24 of its terms' sum; these have K < 900.
constexpr double kGemmErrorMax = 6e-5;

/// A matrix whose rows lie apart, with guards between them.
class Guarded {
 public:
  Guarded(int64_t num_rows, int64_t num_cols)
      : num_rows_(num_rows),
        num_cols_(num_cols),
        values_(static_cast<size_t>(num_rows * (num_cols + 3)), kGuard) {
    for_each([](float& value) { value = 0.0f; });
  }

  Matrix view() {
    return {f32_matrix(values_.data(), num_rows_, num_cols_ + 3).cols(0, num_cols_)};
  }
  float& at(int64_t i, int64_t j) { return values_[static_cast<size_t>(i * (num_cols_ + 3) + j)]; }
  double f64(int64_t i, int64_t j) { return double{at(i, j)}; }
  template <class Change>
  void for_each(const Change& change) {
    for (int64_t i = 0; i < num_rows_; ++i) {
      for (int64_t j = 0; j < num_cols_; ++j) change(at(i, j));
    }
  }
  void fill(uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for_each([&](float& value) { value = normal(random); });
  }
  bool has_guards() {
    for (int64_t i = 0; i < num_rows_; ++i) {
      for (int64_t j = num_cols_; j < num_cols_ + 3; ++j) {
        if (at(i, j) != kGuard) return false;
      }
    }
    return true;
  }
  friend bool operator==(const Guarded& a, const Guarded& b) {
    return a.values_.size() == b.values_.size() &&
           std::memcmp(a.values_.data(), b.values_.data(), a.values_.size() * sizeof(float)) == 0;
  }

 private:
  int64_t num_rows_, num_cols_;
  std::vector<float> values_;
};

/// Sum over k of left(k) * right(k), and how far from it `value` is, relative to the sum of the
/// terms' magnitudes.
template <class Left, class Right>
double gemm_error(double value, int64_t K, const Left& left, const Right& right) {
  double sum = 0, magnitude = 1e-30;
  for (int64_t k = 0; k < K; ++k) {
    const double term = left(k) * right(k);
    sum += term;
    magnitude += std::abs(term);
  }
  return std::abs(value - sum) / magnitude;
}

/// x^T x + I of x [2K, K], an average correlation between neighbours.
Guarded positive_definite(int64_t K, uint32_t seed) {
  ThreadPool pool(1);
  ExecContext context{pool};
  Guarded x(2 * K, K), a(K, K);
  x.fill(seed);
  for (int64_t t = 0; t < 2 * K; ++t) {
    for (int64_t k = 1; k < K; ++k) x.at(t, k) += 0.7f * x.at(t, k - 1);
  }
  add_gram(context, x.view(), a.view());
  for (int64_t k = 0; k < K; ++k) a.at(k, k) += 1.0f;
  return a;
}

struct Sizes {
  int64_t M, N, K;
};

const std::vector<Sizes> kGemmCases = {{0, 3, 4},    {3, 0, 4},     {3, 4, 0},    {1, 1, 1},
                                       {5, 33, 257}, {769, 31, 65}, {40, 801, 7}, {193, 95, 830}};

TEST(MultiplyTransposed, IsTheDefinition) {
  for (const auto& [M, N, K] : kGemmCases) {
    SCOPED_TRACE(str(M, " ", N, " ", K));
    ThreadPool pool(2);
    ExecContext context{pool};
    Guarded a(M, K), b(N, K), c(M, N);
    a.fill(1);
    b.fill(2);
    multiply_transposed(context, a.view(), b.view(), c.view());
    double error = 0;
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) {
        error = std::max(error, gemm_error(
                                    c.f64(m, n), K, [&](int64_t k) { return a.f64(m, k); },
                                    [&](int64_t k) { return b.f64(n, k); }));
      }
    }
    EXPECT_LT(error, kGemmErrorMax);
    EXPECT_TRUE(c.has_guards());
  }
}

TEST(SubtractGemm, IsTheDefinition) {
  for (const auto& [M, N, K] : kGemmCases) {
    SCOPED_TRACE(str(M, " ", N, " ", K));
    ThreadPool pool(2);
    ExecContext context{pool};
    Guarded a(M, K), b(K, N), c(M, N);
    a.fill(1);
    b.fill(2);
    c.fill(3);
    Guarded before = c;
    subtract_gemm(context, a.view(), b.view(), c.view());
    double error = 0;
    for (int64_t m = 0; m < M; ++m) {
      for (int64_t n = 0; n < N; ++n) {
        // Structured bindings cannot be captured in clang 14.
        const int64_t last = K;
        const auto left = [&, last](int64_t k) {
          return k == last ? before.f64(m, n) : -a.f64(m, k);
        };
        const auto right = [&, last](int64_t k) { return k == last ? 1.0 : b.f64(k, n); };
        error = std::max(error, gemm_error(c.f64(m, n), K + 1, left, right));
      }
    }
    EXPECT_LT(error, kGemmErrorMax);
    EXPECT_TRUE(c.has_guards());
  }
}

TEST(AddGram, IsTheDefinitionAndSymmetric) {
  for (const auto& [T, K] : {std::pair<int64_t, int64_t>{0, 5}, {1, 1}, {513, 33}, {70, 801}}) {
    SCOPED_TRACE(str(T, " ", K));
    ThreadPool pool(2);
    ExecContext context{pool};
    Guarded x(T, K), gram(K, K);
    x.fill(4);
    for (int64_t k = 0; k < K; ++k) gram.at(k, k) = static_cast<float>(k);
    add_gram(context, x.view(), gram.view());
    double error = 0;
    for (int64_t i = 0; i < K; ++i) {
      for (int64_t j = 0; j < K; ++j) {
        ASSERT_EQ(gram.at(i, j), gram.at(j, i));
        const double start = i == j ? static_cast<double>(i) : 0.0;
        const int64_t last = T;
        const auto left = [&, last](int64_t t) { return t == last ? start : x.f64(t, i); };
        const auto right = [&, last](int64_t t) { return t == last ? 1.0 : x.f64(t, j); };
        error = std::max(error, gemm_error(gram.f64(i, j), T + 1, left, right));
      }
    }
    EXPECT_LT(error, kGemmErrorMax);
    EXPECT_TRUE(gram.has_guards());
  }
}

TEST(AddGram, GivesTheBitsOfOneCallForTokensDividedAtItsPieces) {
  constexpr int64_t T = 2 * kGramTokens + 70, K = 35;
  ThreadPool pool(2);
  ExecContext context{pool};
  Guarded x(T, K), whole(K, K), divided(K, K);
  x.fill(10);
  add_gram(context, x.view(), whole.view());
  add_gram(context, x.view().rows(0, kGramTokens), divided.view());
  add_gram(context, x.view().rows(kGramTokens, T), divided.view());
  EXPECT_TRUE(whole == divided);
}

// Around blocks of 256 and pieces of 768 rows.
const std::vector<int64_t> kFactorSizes = {1, 2, 33, 255, 256, 257, 513, 1030};

/// The textbook's factor in f64.
std::vector<double> slow_cholesky(Guarded& a, int64_t K) {
  std::vector<double> l(static_cast<size_t>(K * K));
  const auto at = [&](int64_t i, int64_t j) -> double& {
    return l[static_cast<size_t>(i * K + j)];
  };
  for (int64_t i = 0; i < K; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = a.f64(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= at(i, k) * at(j, k);
      at(i, j) = i == j ? std::sqrt(sum) : sum / at(j, j);
    }
  }
  return l;
}

TEST(FactorCholesky, IsTheFactorOfF64) {
  for (const int64_t K : kFactorSizes) {
    SCOPED_TRACE(K);
    ThreadPool pool(2);
    ExecContext context{pool};
    Guarded a = positive_definite(K, 5);
    const std::vector<double> expected = slow_cholesky(a, K);
    ASSERT_EQ(factor_cholesky(context, a.view()), -1);
    double error = 0;
    for (int64_t i = 0; i < K; ++i) {
      for (int64_t j = 0; j < K; ++j) {
        const double want = expected[static_cast<size_t>(i * K + j)];
        error = std::max(error,
                         std::abs(a.f64(i, j) - want) / expected[static_cast<size_t>(i * K + i)]);
        if (j > i) {
          ASSERT_EQ(a.at(i, j), 0.0f);
        }
      }
    }
    EXPECT_LT(error, 2e-5);
    EXPECT_TRUE(a.has_guards());
  }
}

TEST(FactorCholesky, NamesTheColumnAndLeavesWhatIsAboveTheDiagonal) {
  ThreadPool pool(1);
  ExecContext context{pool};
  for (const int64_t column : {0, 3, 256, 300, 599}) {
    for (const float pivot : {-1e4f, 0.0f, std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity()}) {
      SCOPED_TRACE(str(column, " ", pivot));
      Guarded a(600, 600);
      for (int64_t i = 0; i < 600; ++i) {
        for (int64_t j = 0; j < 600; ++j) a.at(i, j) = i == j ? 600.0f : 1.0f;
      }
      for (int64_t k = 0; k < column; ++k) {  // nothing of the other columns reaches the pivot
        a.at(column, k) = 0.0f;
      }
      a.at(column, column) = pivot;
      Guarded before = a;
      EXPECT_EQ(factor_cholesky(context, a.view()), column);
      for (int64_t i = 0; i < 600; ++i) {
        for (int64_t j = i + 1; j < 600; ++j) ASSERT_EQ(a.at(i, j), before.at(i, j));
      }
    }
  }
}

TEST(InvertLower, TimesTheMatrixIsTheIdentity) {
  for (const int64_t K : kFactorSizes) {
    SCOPED_TRACE(K);
    ThreadPool pool(2);
    ExecContext context{pool};
    Guarded l = positive_definite(K, 6);
    ASSERT_EQ(factor_cholesky(context, l.view()), -1);
    Guarded inverse = l;
    invert_lower(context, inverse.view());
    double error = 0;
    for (int64_t i = 0; i < K; ++i) {
      for (int64_t j = 0; j < K; ++j) {
        if (j > i) {
          ASSERT_EQ(inverse.at(i, j), 0.0f);
        }
        double sum = i == j ? -1.0 : 0.0;
        for (int64_t k = j; k <= i; ++k) sum += inverse.f64(i, k) * l.f64(k, j);
        error = std::max(error, std::abs(sum));
      }
    }
    EXPECT_LT(error, 5e-5);
    EXPECT_TRUE(inverse.has_guards());
  }
}

TEST(InvertLower, SolvesWhereHalvesHaveSeveralPieces) {
  constexpr int64_t K = 1801;
  ThreadPool pool(2);
  ExecContext context{pool};
  Guarded l(K, K), x(K, 1);
  l.fill(8);
  x.fill(9);
  for (int64_t i = 0; i < K; ++i) {
    for (int64_t j = 0; j < K; ++j) l.at(i, j) = j > i ? 0.0f : l.at(i, j) / 60.0f;
    l.at(i, i) = 1.0f + 0.01f * static_cast<float>(i % 9);
  }
  const auto times_x = [&x](Guarded& matrix) {
    Guarded result(K, 1);
    for (int64_t i = 0; i < K; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < K; ++j) sum += matrix.f64(i, j) * x.f64(j, 0);
      result.at(i, 0) = static_cast<float>(sum);
    }
    return result;
  };
  const Guarded expected = x;
  x = times_x(l);
  invert_lower(context, l.view());
  Guarded solution = times_x(l);
  x = expected;
  double error = 0;
  for (int64_t i = 0; i < K; ++i) {
    error = std::max(error, std::abs(solution.f64(i, 0) - x.f64(i, 0)));
  }
  EXPECT_LT(error, 1e-3);
}

TEST(Linalg, GivesTheSameBitsForAnyNumberOfThreads) {
  constexpr int64_t K = 801;
  const auto run_all = [](int num_threads) {
    ThreadPool pool(num_threads);
    ExecContext context{pool};
    Guarded x(100, K), gram(K, K), result(100, K), inverse(K, K);
    x.fill(7);
    add_gram(context, x.view(), gram.view());
    for (int64_t k = 0; k < K; ++k) gram.at(k, k) += 50.0f;
    multiply_transposed(context, x.view(), gram.view(), result.view());
    subtract_gemm(context, x.view(), gram.view(), result.view());
    inverse = gram;
    EXPECT_EQ(factor_cholesky(context, inverse.view()), -1);
    Guarded factor = inverse;
    invert_lower(context, inverse.view());
    return std::vector<Guarded>{gram, result, factor, inverse};
  };
  const std::vector<Guarded> one = run_all(1);
  for (const int num_threads : {2, 3, 5}) EXPECT_TRUE(run_all(num_threads) == one) << num_threads;
}

}  // namespace
}  // namespace halley
