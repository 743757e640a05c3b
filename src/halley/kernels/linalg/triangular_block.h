// Small lower triangular matrices in f64: the diagonal blocks of blocked factorisations. Internal
// to kernels/linalg.
#pragma once

#include <cstdint>
#include <vector>

#include "halley/core/matrix.h"

namespace halley::linalg {

/// Rows of a diagonal block: one block along K of the f32 kernel.
inline constexpr int64_t kBlockRows = 256;

/// A lower triangle of up to kBlockRows rows.
class TriangularBlock {
 public:
  /// The lower triangle of `block` [n, n] f32, n <= kBlockRows.
  explicit TriangularBlock(ConstMatrix block);

  /// L of the Cholesky factorisation in place of it. Returns the first column whose pivot is not
  /// above zero or not finite, or -1.
  [[nodiscard]] int64_t factor();
  /// Its inverse in place of it.
  void invert();
  /// Writes the lower triangle, rounded to f32, and nothing else.
  void store(Matrix block) const;

 private:
  double* row(int64_t index) { return values_.data() + index * kBlockRows; }
  const double* row(int64_t index) const { return values_.data() + index * kBlockRows; }

  int64_t num_rows_;
  std::vector<double> values_;  // [num_rows, kBlockRows]
};

}  // namespace halley::linalg
