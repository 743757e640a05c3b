// Checks of what callers of the library pass: it is untrusted.
#pragma once

#include <cstdint>
#include <string>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/matrix.h"
#include "halley/cuda/library/halley_kernels.h"

namespace halley::cuda {

// Limit of N, K and M: N * K and M * K stay far below 2^63, and tile indices fit 32 bits.
inline constexpr int64_t kSizeMax = int64_t{1} << 30;

/// Throws InputError with `message` unless `is_met`.
void require(bool is_met, const std::string& message);

template <typename T>
void require_pointer(const T* pointer, const char* what) {
  require(pointer != nullptr, str(what, ": expected a pointer, got null."));
}

/// The checked view of a caller's matrix. This and the next two throw InputError.
Matrix matrix_of(const halley_kernels_matrix& matrix, const char* what);
void require_shape(const Matrix& matrix, int64_t num_rows, int64_t num_cols, const char* what);
/// Requires data and rows at multiples of 16 bytes.
void require_wide_rows(const Matrix& matrix, const char* what);

}  // namespace halley::cuda
