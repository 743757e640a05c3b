// Tensor maps: how the copy engine sees a matrix of which it copies boxes.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include "halley/core/matrix.h"

namespace halley {

/// The driver's cuTensorMapEncodeTiled(), looked up once: programs are not linked with the driver.
/// Throws DeviceError where the driver has none.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder();

/// Of f16, bf16, and of elements of one byte, which are copied as they are.
CUtensorMapDataType tensor_map_dtype(DType dtype);

struct BoxMapOptions {
  /// f16, bf16, or elements of one byte; at multiples of 16 bytes, and rows too.
  ConstMatrix matrix;
  int box_cols = 0;  // elements; at most the bytes of the swizzle
  int box_rows = 0;  // at most 256
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
};

/// What lies outside of the matrix is copied as zero.
CUtensorMap box_map(const BoxMapOptions& options);

}  // namespace halley
