#include "halley/kernels/linalg/triangular_block.h"

#include <array>
#include <cmath>

#include "halley/base/check.h"

namespace halley::linalg {

TriangularBlock::TriangularBlock(ConstMatrix block)
    : num_rows_(block.num_rows), values_(static_cast<size_t>(num_rows_ * kBlockRows)) {
  HALLEY_CHECK(num_rows_ <= kBlockRows && block.num_cols == num_rows_, num_rows_, block.num_cols);
  for (int64_t i = 0; i < num_rows_; ++i) {
    const float* from = block.row<float>(i);
    for (int64_t j = 0; j <= i; ++j) row(i)[j] = double{from[j]};
  }
}

int64_t TriangularBlock::factor() {
  std::array<double, kBlockRows> column;
  for (int64_t j = 0; j < num_rows_; ++j) {
    const double pivot = row(j)[j];
    if (!(pivot > 0.0) || !std::isfinite(pivot)) return j;
    const double root = std::sqrt(pivot);
    row(j)[j] = root;
    for (int64_t i = j + 1; i < num_rows_; ++i) {
      row(i)[j] /= root;
      column[static_cast<size_t>(i)] = row(i)[j];
    }
    for (int64_t i = j + 1; i < num_rows_; ++i) {
      double* to = row(i);
      const double factor = to[j];
      for (int64_t k = j + 1; k <= i; ++k) to[k] -= factor * column[static_cast<size_t>(k)];
    }
  }
  return -1;
}

// Row i of the inverse is (e_i - sum over j < i of L[i, j] times row j of the inverse) / L[i, i].
void TriangularBlock::invert() {
  std::array<double, kBlockRows> sum;
  for (int64_t i = 0; i < num_rows_; ++i) {
    sum.fill(0.0);
    for (int64_t j = 0; j < i; ++j) {
      const double factor = row(i)[j];
      const double* inverse = row(j);
      for (int64_t k = 0; k <= j; ++k) sum[static_cast<size_t>(k)] += factor * inverse[k];
    }
    const double reciprocal = 1.0 / row(i)[i];
    for (int64_t k = 0; k < i; ++k) row(i)[k] = -sum[static_cast<size_t>(k)] * reciprocal;
    row(i)[i] = reciprocal;
  }
}

void TriangularBlock::store(Matrix block) const {
  for (int64_t i = 0; i < num_rows_; ++i) {
    float* to = block.row<float>(i);
    for (int64_t j = 0; j <= i; ++j) to[j] = static_cast<float>(row(i)[j]);
  }
}

}  // namespace halley::linalg
