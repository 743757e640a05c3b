#include "halley/models/transform/hadamard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "halley/base/check.h"

namespace halley {
namespace {

/// A size that is built in: 1, or one of Paley's constructions.
struct BuiltIn {
  int64_t size = 1;
  bool is_second = false;  // the construction
};
constexpr std::array<BuiltIn, 7> kBuiltIn = {{{1}, {12}, {20}, {28, true}, {36, true}, {44}, {60}}};
constexpr int64_t kBuiltInMax = 60;
/// The last butterflies of a power of two are done as one small matmul, which compilers vectorize.
constexpr int64_t kSylvester = 8;
constexpr int64_t kTaskRows = 8;  // rows of a task: enough work for one, tasks for all threads

/// The built-in size m with n = 2^a m, or nothing.
std::optional<BuiltIn> built_in_of(int64_t n) {
  for (const BuiltIn& built_in : kBuiltIn) {
    if (n < built_in.size || n % built_in.size != 0) continue;
    const int64_t power = n / built_in.size;
    if ((power & (power - 1)) == 0) return built_in;
  }
  return std::nullopt;
}

/// The quadratic character of x modulo the prime q: 0 for 0, 1 for squares, -1 for others.
float character(int64_t x, int64_t q) {
  const int64_t residue = ((x % q) + q) % q;
  if (residue == 0) return 0;
  for (int64_t root = 1; root < q; ++root) {
    if (root * root % q == residue) return 1;
  }
  return -1;
}

/// Row i, column j of [[0, 1], [corner, Q]] with Q[a, b] = character(b - a), order q + 1: a
/// conference matrix C, C C^T = q I.
float conference(int64_t i, int64_t j, int64_t q, float corner) {
  if (i == 0) return j == 0 ? 0.0f : 1.0f;
  return j == 0 ? corner : character(j - i, q);
}

/// Paley's constructions (R. Paley, On orthogonal matrices, 1933). The first, for primes q of the
/// form 4t + 3: Q is skew, with -1 in the corner so is C, and I + C is a Hadamard matrix of order
/// q + 1; 12, 20, 44 and 60 are made of 11, 19, 43 and 59. The second, for q of the form 4t + 1: Q
/// and C are symmetric, and C (x) [1 1; 1 -1] + I (x) [1 -1; -1 -1] has order 2 (q + 1); 28 and 36
/// are made of 13 and 17.
/// Powers of two: Sylvester's, minus where i and j have an odd number of ones in common.
std::vector<float> build_matrix(const BuiltIn& built_in) {
  const int64_t m = built_in.size;
  std::vector<float> matrix;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < m; ++j) {
      if (m <= kSylvester) {
        matrix.push_back(std::popcount(static_cast<uint64_t>(i & j)) % 2 == 0 ? 1.0f : -1.0f);
        continue;
      }
      if (!built_in.is_second) {
        matrix.push_back((i == j ? 1.0f : 0.0f) + conference(i, j, m - 1, -1.0f));
        continue;
      }
      const float c = conference(i / 2, j / 2, m / 2 - 1, 1.0f);
      const bool is_odd_row = i % 2 != 0, is_odd_column = j % 2 != 0;
      const float identity = is_odd_row || is_odd_column ? -1.0f : 1.0f;
      matrix.push_back(i / 2 == j / 2 ? identity : is_odd_row && is_odd_column ? -c : c);
    }
  }
  return matrix;
}

/// x of size n, seen as [n / m, m]: butterflies along the first dimension, then the small matrix
/// along the second, and the factor that makes it orthogonal.
void transform_row(float* x, int64_t n, const std::vector<float>& small, int64_t m, float factor) {
  for (int64_t stride = m; stride < n; stride *= 2) {
    for (int64_t block = 0; block < n; block += 2 * stride) {
      float* const low = x + block;
      float* const high = low + stride;
      for (int64_t i = 0; i < stride; ++i) {
        const float sum = low[i] + high[i];
        high[i] = low[i] - high[i];
        low[i] = sum;
      }
    }
  }
  std::array<float, kBuiltInMax> old{};
  for (int64_t block = 0; block < n; block += m) {
    float* const values = x + block;
    std::copy_n(values, m, old.begin());
    std::fill_n(values, m, 0.0f);
    for (int64_t i = 0; i < m; ++i) {
      const float scaled = old[static_cast<size_t>(i)] * factor;
      const float* const entries = small.data() + i * m;
      for (int64_t j = 0; j < m; ++j) values[j] += scaled * entries[j];
    }
  }
}

/// The small matrix for rows of size n.
BuiltIn small_matrix_of(int64_t n) {
  const std::optional<BuiltIn> built_in = built_in_of(n);
  HALLEY_CHECK(built_in.has_value(), n);
  return built_in->size == 1 ? BuiltIn{std::min(n, kSylvester)} : *built_in;
}

void transform_rows(ExecContext& context, Matrix x, const std::vector<float>& small, int64_t m) {
  const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(x.num_cols)));
  context.pool.run((x.num_rows + kTaskRows - 1) / kTaskRows, [&](int64_t task, int /*thread*/) {
    const int64_t end = std::min((task + 1) * kTaskRows, x.num_rows);
    for (int64_t row = task * kTaskRows; row < end; ++row) {
      transform_row(x.row<float>(row), x.num_cols, small, m, factor);
    }
  });
}

}  // namespace

bool has_hadamard(int64_t n) { return built_in_of(n).has_value(); }

void apply_hadamard(ExecContext& context, Matrix x) {
  const BuiltIn small = small_matrix_of(x.num_cols);
  transform_rows(context, x, build_matrix(small), small.size);
}

}  // namespace halley
