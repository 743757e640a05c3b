// Dense linear algebra in f32 for calibration: GEMM, Gram matrices, Cholesky factors. Every result
// is the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"

namespace halley {

/// c = a b^T. Shapes a [M, K], b [N, K], c [M, N], all f32; c may not overlap the others.
void multiply_transposed(ExecContext& context, ConstMatrix a, ConstMatrix b, Matrix c);

/// c -= a b. Shapes a [M, K], b [K, N], c [M, N], all f32; c may not overlap the others.
void subtract_gemm(ExecContext& context, ConstMatrix a, ConstMatrix b, Matrix c);

/// The sum of (a[i] - b[i])^2, in f64, in order; both of one size.
double squared_distance(std::span<const float> a, std::span<const float> b);

/// Tokens whose x^T x is accumulated before it is added to a Gram matrix.
inline constexpr int64_t kGramTokens = 512;

/// gram += x^T x, both triangles. Shapes x [T, K], gram [K, K] f32, symmetric. Tokens divided among
/// calls at multiples of kGramTokens give the bits of one call.
void add_gram(ExecContext& context, ConstMatrix x, Matrix gram);

/// The lower factor L of a = L L^T in place of a's lower triangle; the upper triangle becomes zero.
/// Shape a [K, K] f32, symmetric; only the lower triangle is read. Returns -1, or the first column
/// whose pivot is not above zero or not finite: then the part above the diagonal is unchanged, and
/// the rest undefined.
[[nodiscard]] int64_t factor_cholesky(ExecContext& context, Matrix a);

/// The inverse of a lower triangular matrix in its place; the upper triangle stays zero.
/// Shape l [K, K] f32, diagonal not zero.
void invert_lower(ExecContext& context, Matrix l);

}  // namespace halley
