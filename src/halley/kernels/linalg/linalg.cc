#include "halley/kernels/linalg/linalg.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/kernels/linalg/gemm_pieces.h"

namespace halley {
namespace {

using linalg::for_pieces;
using linalg::for_rows;

// to = from^T. A line of the source is read once, for as many rows as it has columns: rows of a
// matrix lie so far apart that they push each other out of a cache.
void transpose(ExecContext& context, ConstMatrix from, Matrix to) {
  constexpr int64_t kLineFloats = 16;
  context.pool.run(ceil_div(from.num_cols, kLineFloats), [&](int64_t line, int) {
    const int64_t begin = line * kLineFloats;
    const int64_t end = std::min(from.num_cols, begin + kLineFloats);
    for (int64_t row = 0; row < from.num_rows; ++row) {
      for (int64_t i = begin; i < end; ++i) to.row<float>(i)[row] = from.row<float>(row)[i];
    }
  });
}

void add(ExecContext& context, ConstMatrix piece, Matrix gram) {
  for_rows(context, piece.num_rows, [&](int64_t row) {
    const float* from = piece.row<float>(row);
    float* to = gram.row<float>(row);
    for (int64_t i = 0; i < piece.num_cols; ++i) to[i] += from[i];
  });
}

}  // namespace

double squared_distance(std::span<const float> a, std::span<const float> b) {
  HALLEY_CHECK(a.size() == b.size(), a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    sum += difference * difference;
  }
  return sum;
}

void multiply_transposed(ExecContext& context, ConstMatrix a, ConstMatrix b, Matrix c) {
  HALLEY_CHECK(a.num_cols == b.num_cols && c.num_rows == a.num_rows && c.num_cols == b.num_rows,
               a.num_rows, a.num_cols, b.num_rows, b.num_cols, c.num_rows, c.num_cols);
  for_pieces(0, b.num_rows, [&](int64_t n_begin, int64_t n_end) {
    const PackedWeight packed = linalg::pack_rows(context, b.rows(n_begin, n_end));
    for_pieces(0, a.num_rows, [&](int64_t m_begin, int64_t m_end) {
      linalg::multiply(context, a.rows(m_begin, m_end), packed,
                       c.rows(m_begin, m_end).cols(n_begin, n_end));
    });
  });
}

void subtract_gemm(ExecContext& context, ConstMatrix a, ConstMatrix b, Matrix c) {
  HALLEY_CHECK(a.num_cols == b.num_rows && c.num_rows == a.num_rows && c.num_cols == b.num_cols,
               a.num_rows, a.num_cols, b.num_rows, b.num_cols, c.num_rows, c.num_cols);
  linalg::PieceBuffer buffer;
  for_pieces(0, b.num_cols, [&](int64_t n_begin, int64_t n_end) {
    const PackedWeight packed = linalg::pack_columns(context, b.cols(n_begin, n_end));
    for_pieces(0, a.num_rows, [&](int64_t m_begin, int64_t m_end) {
      const Matrix piece = buffer.take(m_end - m_begin, n_end - n_begin);
      linalg::multiply(context, a.rows(m_begin, m_end), packed, piece);
      for_rows(context, piece.num_rows, [&](int64_t row) {
        const float* from = piece.row<float>(row);
        float* to = c.row<float>(m_begin + row) + n_begin;
        for (int64_t i = 0; i < piece.num_cols; ++i) to[i] -= from[i];
      });
    });
  });
}

void add_gram(ExecContext& context, ConstMatrix x, Matrix gram) {
  const int64_t K = x.num_cols;
  HALLEY_CHECK(gram.num_rows == K && gram.num_cols == K, gram.num_rows, gram.num_cols, K);
  linalg::PieceBuffer row_buffer, buffer, flipped_buffer;
  for (int64_t t = 0; t < x.num_rows; t += kGramTokens) {
    const ConstMatrix tokens = x.rows(t, std::min(x.num_rows, t + kGramTokens));
    for_pieces(0, K, [&](int64_t n_begin, int64_t n_end) {
      const PackedWeight packed = linalg::pack_columns(context, tokens.cols(n_begin, n_end));
      for_pieces(n_begin, K, [&](int64_t m_begin, int64_t m_end) {
        const Matrix rows = row_buffer.take(m_end - m_begin, tokens.num_rows);
        transpose(context, tokens.cols(m_begin, m_end), rows);
        const Matrix piece = buffer.take(m_end - m_begin, n_end - n_begin);
        linalg::multiply(context, rows, packed, piece);
        add(context, piece, gram.rows(m_begin, m_end).cols(n_begin, n_end));
        if (m_begin == n_begin) return;
        const Matrix flipped = flipped_buffer.take(piece.num_cols, piece.num_rows);
        transpose(context, piece, flipped);
        add(context, flipped, gram.rows(n_begin, n_end).cols(m_begin, m_end));
      });
    });
  }
}

}  // namespace halley
