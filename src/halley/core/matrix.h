// Views of activations: rows of equal length, the columns dense, rows `row_stride` apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "halley/base/check.h"
#include "halley/core/dtype.h"

namespace halley {

/// [num_rows, num_cols], the columns fastest, rows `row_stride` elements apart. Owns nothing.
/// Byte is std::byte or const std::byte.
template <typename Byte>
struct BasicMatrix {
  Byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  int64_t row_stride = 0;  // elements

  /// Row `index` as elements of T, which must have the element's size.
  template <typename T>
  auto* row(int64_t index) const {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    HALLEY_DCHECK(bits_of(dtype) == static_cast<int>(8 * sizeof(T)), name_of(dtype));
    return reinterpret_cast<Element*>(data) + index * row_stride;
  }

  /// Columns [begin, end) of every row.
  BasicMatrix cols(int64_t begin, int64_t end) const {
    HALLEY_DCHECK(0 <= begin && begin <= end && end <= num_cols, begin, end, num_cols);
    return {data + begin * (bits_of(dtype) / 8), dtype, num_rows, end - begin, row_stride};
  }

  /// Rows [begin, end).
  BasicMatrix rows(int64_t begin, int64_t end) const {
    HALLEY_DCHECK(0 <= begin && begin <= end && end <= num_rows, begin, end, num_rows);
    return {data + begin * row_stride * (bits_of(dtype) / 8), dtype, end - begin, num_cols,
            row_stride};
  }

  operator BasicMatrix<const std::byte>() const  // NOLINT(google-explicit-constructor)
      requires(!std::is_const_v<Byte>) {
    return {data, dtype, num_rows, num_cols, row_stride};
  }
};

using Matrix = BasicMatrix<std::byte>;
using ConstMatrix = BasicMatrix<const std::byte>;

/// A dense f32 matrix over memory that the caller owns.
inline Matrix f32_matrix(float* data, int64_t num_rows, int64_t num_cols) {
  return {reinterpret_cast<std::byte*>(data), DType::kF32, num_rows, num_cols, num_cols};
}
inline ConstMatrix f32_matrix(const float* data, int64_t num_rows, int64_t num_cols) {
  return {reinterpret_cast<const std::byte*>(data), DType::kF32, num_rows, num_cols, num_cols};
}

}  // namespace halley
