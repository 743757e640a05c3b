// For tests of the C ABI: a device's matrix as the library takes it.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/library/halley_kernels.h"
#include "halley/cuda/testing/device_matrix.h"

namespace halley {

inline halley_kernels_dtype kernels_dtype(DType dtype) {
  if (dtype == DType::kF16) return HALLEY_KERNELS_F16;
  if (dtype == DType::kBf16) return HALLEY_KERNELS_BF16;
  if (dtype == DType::kF8E4M3) return HALLEY_KERNELS_E4M3;
  return dtype == DType::kI8 ? HALLEY_KERNELS_S8 : HALLEY_KERNELS_F32;
}

inline halley_kernels_matrix view_of(const DeviceMatrix& matrix) {
  const Matrix view = matrix.matrix();
  return {view.data, kernels_dtype(view.dtype), view.num_rows, view.num_cols, view.row_stride};
}

}  // namespace halley
