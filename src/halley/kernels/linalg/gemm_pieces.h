// GEMMs in pieces of bounded size on the f32 kernel. Internal to kernels/linalg.
#pragma once

#include <algorithm>
#include <cstdint>

#include "halley/base/checked_math.h"
#include "halley/core/exec_context.h"
#include "halley/core/host_buffer.h"
#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"

namespace halley::linalg {

/// Rows and columns of one piece of the result: four row blocks of the kernel. A piece of 768 * 768
/// is large enough to make packing cheap, and its operands take 88 MB at K = 14336.
inline constexpr int64_t kPieceRows = 768;

/// Calls body(begin, end) for the pieces of [begin, end), in ascending order.
template <class Body>
void for_pieces(int64_t begin, int64_t end, const Body& body) {
  for (; begin < end; begin += kPieceRows) body(begin, std::min(end, begin + kPieceRows));
}

/// Packs b [N, K] f32 for a b^T.
PackedWeight pack_rows(ExecContext& context, ConstMatrix b);
/// Packs b [K, N] f32 for a b.
PackedWeight pack_columns(ExecContext& context, ConstMatrix b);

/// c = a W^T for a packed W [N, K]. Shapes a [M, K], c [M, N]. Each element of c is one chain of
/// fused multiply-adds over k = 0, 1, ..., K-1, whatever the pieces and threads.
void multiply(ExecContext& context, ConstMatrix a, const PackedWeight& packed, Matrix c);

/// Memory for the result of one piece.
class PieceBuffer {
 public:
  /// At most kPieceRows each; invalidates the matrix of an earlier call.
  Matrix take(int64_t num_rows, int64_t num_cols);

 private:
  HostBuffer buffer_;
};

/// Calls body(row) for [0, num_rows) on all threads.
template <class Body>
void for_rows(ExecContext& context, int64_t num_rows, const Body& body) {
  // Rows of a piece are handed out in runs: one of them is less work than handing it out.
  constexpr int64_t kRun = 16;
  context.pool.run(ceil_div(num_rows, kRun), [&](int64_t task, int) {
    const int64_t end = std::min(num_rows, (task + 1) * kRun);
    for (int64_t row = task * kRun; row < end; ++row) body(row);
  });
}

}  // namespace halley::linalg
