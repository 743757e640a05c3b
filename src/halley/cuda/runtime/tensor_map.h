// TMA tensor maps (CUtensorMap) of matrices that kernels load in boxes.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include "halley/core/matrix.h"

namespace halley {

/// The driver's cuTensorMapEncodeTiled(), looked up once: programs do not link with the driver.
/// Throws DeviceError where the driver has none.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder();

/// TMA type of f16, bf16, and elements of one byte, which TMA copies unchanged.
CUtensorMapDataType tensor_map_dtype(DType dtype);

struct BoxMapOptions {
  /// f16, bf16, or elements of one byte; data and rows at multiples of 16 bytes.
  ConstMatrix matrix;
  int box_cols = 0;  // elements; at most the bytes of the swizzle
  int box_rows = 0;  // at most 256
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
};

/// TMA fills elements outside of the matrix with zeros.
CUtensorMap box_map(const BoxMapOptions& options);

}  // namespace halley
