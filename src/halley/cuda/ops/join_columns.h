// Puts the columns that several ranks have computed next to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// How several parts divide columns: part r has columns [begins[r], begins[r + 1]).
struct ColumnShares {
  static constexpr int kNumPartsMax = 32;

  std::vector<int64_t> begins;  // ascending, from 0

  int num_parts() const { return static_cast<int>(begins.size()) - 1; }
  int64_t num_columns() const { return begins.back(); }
  /// Columns of the widest part.
  int64_t width_max() const;
};

/// Copies all parts: all[m, begins[r] + c] is row m, column c of part r.
/// Shapes    all [M, num_columns()] f32, f16 or bf16; parts [num_parts(), M, row_stride] of the
/// same
///           type, one after the other
void join_columns(const CudaContext& context, const ColumnShares& shares, const std::byte* parts,
                  int64_t row_stride, Matrix all);

}  // namespace halley::cuda
