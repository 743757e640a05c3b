#include "halley/cuda/library/checked_arguments.h"

#include <bit>
#include <cstddef>

namespace halley::cuda {
namespace {

DType dtype_of(halley_kernels_dtype dtype, const char* what) {
  switch (dtype) {
    case HALLEY_KERNELS_F32:
      return DType::kF32;
    case HALLEY_KERNELS_F16:
      return DType::kF16;
    case HALLEY_KERNELS_BF16:
      return DType::kBf16;
    case HALLEY_KERNELS_S8:
      return DType::kI8;
    case HALLEY_KERNELS_E4M3:
      return DType::kF8E4M3;
  }
  throw InputError(str(what, ": expected a halley_kernels_dtype, got ", static_cast<int>(dtype),
                       ". Use a value of the header."));
}

}  // namespace

void require(bool is_met, const std::string& message) {
  if (!is_met) throw InputError(message);
}

Matrix matrix_of(const halley_kernels_matrix& matrix, const char* what) {
  const Matrix view = {static_cast<std::byte*>(matrix.data), dtype_of(matrix.dtype, what),
                       matrix.num_rows, matrix.num_cols, matrix.row_stride};
  require(view.num_rows >= 0 && view.num_rows <= kSizeMax && view.num_cols >= 1 &&
              view.num_cols <= kSizeMax && view.row_stride >= view.num_cols &&
              view.row_stride <= kSizeMax,
          str(what, ": expected 0 to ", kSizeMax, " rows, 1 to ", kSizeMax,
              " columns and a stride not below them, got ", view.num_rows, " x ", view.num_cols,
              ", stride ", view.row_stride, "."));
  require(view.data != nullptr || view.num_rows == 0, str(what, ": expected memory, got null."));
  const auto element_bytes = static_cast<uintptr_t>(bits_of(view.dtype) / 8);
  require(std::bit_cast<uintptr_t>(view.data) % element_bytes == 0,
          str(what, ": expected memory at a multiple of ", element_bytes, " bytes."));
  return view;
}

void require_shape(const Matrix& matrix, int64_t num_rows, int64_t num_cols, const char* what) {
  require(matrix.num_rows == num_rows && matrix.num_cols == num_cols,
          str(what, ": expected ", num_rows, " x ", num_cols, ", got ", matrix.num_rows, " x ",
              matrix.num_cols, "."));
}

void require_wide_rows(const Matrix& matrix, const char* what) {
  const auto stride_bytes = static_cast<uint64_t>(matrix.row_stride * (bits_of(matrix.dtype) / 8));
  require((std::bit_cast<uintptr_t>(matrix.data) | stride_bytes) % 16 == 0,
          str(what, ": expected memory and rows at multiples of 16 bytes, got a stride of ",
              stride_bytes, " bytes. Pad the rows."));
}

}  // namespace halley::cuda
