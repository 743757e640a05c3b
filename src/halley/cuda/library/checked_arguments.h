// What callers of the library pass, checked: from strangers, so that all of it may be wrong.
#pragma once

#include <cstdint>
#include <string>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/matrix.h"
#include "halley/cuda/library/halley_kernels.h"

namespace halley::cuda {

// Of N, K and M: their products stay far from the end of 64 bits, and tiles of 32.
inline constexpr int64_t kSizeMax = int64_t{1} << 30;

/// Throws InputError where it is not so.
void require(bool is_met, const std::string& message);

template <typename T>
void require_pointer(const T* pointer, const char* what) {
  require(pointer != nullptr, str(what, ": expected a pointer, got null."));
}

/// Throws InputError where it cannot be one; as the next two.
Matrix matrix_of(const halley_kernels_matrix& matrix, const char* what);
void require_shape(const Matrix& matrix, int64_t num_rows, int64_t num_cols, const char* what);
/// Rows at multiples of 16 bytes.
void require_wide_rows(const Matrix& matrix, const char* what);

}  // namespace halley::cuda
