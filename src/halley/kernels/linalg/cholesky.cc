// The Cholesky factor and the inverse of a triangular matrix, block by block: diagonal blocks in
// f64 (triangular_block.h), all else on the f32 GEMM kernel.
#include <algorithm>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/kernels/linalg/gemm_pieces.h"
#include "halley/kernels/linalg/linalg.h"
#include "halley/kernels/linalg/triangular_block.h"

namespace halley {
namespace {

using linalg::for_pieces;
using linalg::for_rows;
using linalg::kBlockRows;
using linalg::PieceBuffer;
using linalg::TriangularBlock;

Matrix diagonal_block(Matrix a, int64_t begin, int64_t end) {
  return a.rows(begin, end).cols(begin, end);
}

void copy(ExecContext& context, ConstMatrix from, Matrix to, float factor = 1.0f) {
  for_rows(context, from.num_rows, [&](int64_t row) {
    for (int64_t i = 0; i < from.num_cols; ++i) {
      to.row<float>(row)[i] = factor * from.row<float>(row)[i];
    }
  });
}

// The rows below a diagonal block: panel = panel L^-T. Shape panel [M, n]; inverse = L^-1 [n, n].
void solve_panel(ExecContext& context, ConstMatrix inverse, Matrix panel, PieceBuffer* buffer) {
  const PackedWeight packed = linalg::pack_rows(context, inverse);
  for_pieces(0, panel.num_rows, [&](int64_t begin, int64_t end) {
    const Matrix piece = buffer->take(end - begin, panel.num_cols);
    linalg::multiply(context, panel.rows(begin, end), packed, piece);
    copy(context, piece, panel.rows(begin, end));
  });
}

// The lower triangle of rest -= panel panel^T. Shapes panel [M, n], rest [M, M].
void update_rest(ExecContext& context, ConstMatrix panel, Matrix rest, PieceBuffer* buffer) {
  for_pieces(0, rest.num_rows, [&](int64_t n_begin, int64_t n_end) {
    const PackedWeight packed = linalg::pack_rows(context, panel.rows(n_begin, n_end));
    for_pieces(n_begin, rest.num_rows, [&](int64_t m_begin, int64_t m_end) {
      const Matrix piece = buffer->take(m_end - m_begin, n_end - n_begin);
      linalg::multiply(context, panel.rows(m_begin, m_end), packed, piece);
      for_rows(context, piece.num_rows, [&](int64_t row) {
        const float* from = piece.row<float>(row);
        float* to = rest.row<float>(m_begin + row) + n_begin;
        const int64_t num_below = std::min(piece.num_cols, m_begin + row + 1 - n_begin);
        for (int64_t i = 0; i < num_below; ++i) to[i] -= from[i];
      });
    });
  });
}

// below = below inverse for a lower triangular inverse: column n of the result needs the columns
// from n on, so that pieces from the left may overwrite their own inputs.
void multiply_right(ExecContext& context, ConstMatrix inverse, Matrix below, PieceBuffer* buffer) {
  const int64_t K = inverse.num_rows;
  for_pieces(0, K, [&](int64_t n_begin, int64_t n_end) {
    const PackedWeight packed =
        linalg::pack_columns(context, inverse.rows(n_begin, K).cols(n_begin, n_end));
    for_pieces(0, below.num_rows, [&](int64_t m_begin, int64_t m_end) {
      const Matrix rows = below.rows(m_begin, m_end);
      const Matrix piece = buffer->take(m_end - m_begin, n_end - n_begin);
      linalg::multiply(context, rows.cols(n_begin, K), packed, piece);
      copy(context, piece, rows.cols(n_begin, n_end));
    });
  });
}

// below = -inverse below for a lower triangular inverse: row m of the result needs the rows up to
// m, so that pieces from the bottom may overwrite their own inputs.
void multiply_left(ExecContext& context, ConstMatrix inverse, Matrix below, PieceBuffer* buffer) {
  const int64_t M = inverse.num_rows;
  for_pieces(0, below.num_cols, [&](int64_t n_begin, int64_t n_end) {
    const Matrix columns = below.cols(n_begin, n_end);
    for (int64_t m_end = M; m_end > 0; m_end -= std::min(m_end, linalg::kPieceRows)) {
      const int64_t m_begin = m_end - std::min(m_end, linalg::kPieceRows);
      const PackedWeight packed = linalg::pack_columns(context, columns.rows(0, m_end));
      const Matrix piece = buffer->take(m_end - m_begin, n_end - n_begin);
      linalg::multiply(context, inverse.rows(m_begin, m_end).cols(0, m_end), packed, piece);
      copy(context, piece, columns.rows(m_begin, m_end), -1.0f);
    }
  });
}

// The inverse of [[A, 0], [B, C]] is [[A', 0], [-C' B A', C']], A' and C' being inverses. Diagonal
// blocks hold theirs already.
void invert_halves(ExecContext& context, Matrix l, PieceBuffer* buffer) {
  const int64_t K = l.num_rows;
  if (K <= kBlockRows) return;
  const int64_t half = round_up(K / 2, kBlockRows);
  const Matrix upper = diagonal_block(l, 0, half);
  const Matrix lower = diagonal_block(l, half, K);
  const Matrix below = l.rows(half, K).cols(0, half);
  invert_halves(context, upper, buffer);
  invert_halves(context, lower, buffer);
  multiply_right(context, upper, below, buffer);
  multiply_left(context, lower, below, buffer);
}

}  // namespace

int64_t factor_cholesky(ExecContext& context, Matrix a) {
  const int64_t K = a.num_rows;
  HALLEY_CHECK(a.num_cols == K, K, a.num_cols);
  PieceBuffer buffer;
  std::vector<float> inverse(static_cast<size_t>(kBlockRows * kBlockRows));  // above: zeros
  for (int64_t begin = 0; begin < K; begin += kBlockRows) {
    const int64_t end = std::min(K, begin + kBlockRows);
    const Matrix diagonal = diagonal_block(a, begin, end);
    TriangularBlock block(diagonal);
    const int64_t bad_column = block.factor();
    if (bad_column >= 0) return begin + bad_column;
    block.store(diagonal);
    if (end == K) break;
    block.invert();
    const Matrix block_inverse = f32_matrix(inverse.data(), kBlockRows, kBlockRows);
    block.store(block_inverse);
    const Matrix panel = a.rows(end, K).cols(begin, end);
    solve_panel(context, block_inverse, panel, &buffer);
    update_rest(context, panel, diagonal_block(a, end, K), &buffer);
  }
  for_rows(context, K, [&](int64_t row) {
    std::fill(a.row<float>(row) + row + 1, a.row<float>(row) + K, 0.0f);
  });
  return -1;
}

void invert_lower(ExecContext& context, Matrix l) {
  const int64_t K = l.num_rows;
  HALLEY_CHECK(l.num_cols == K, K, l.num_cols);
  context.pool.run(ceil_div(K, kBlockRows), [&](int64_t index, int) {
    const int64_t begin = index * kBlockRows;
    const Matrix diagonal = diagonal_block(l, begin, std::min(K, begin + kBlockRows));
    TriangularBlock block(diagonal);
    block.invert();
    block.store(diagonal);
  });
  PieceBuffer buffer;
  invert_halves(context, l, &buffer);
}

}  // namespace halley
