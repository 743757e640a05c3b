#include "halley/cuda/runtime/tensor_map.h"

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley {
namespace {

PFN_cuTensorMapEncodeTiled_v12000 find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                              cudaEnableDefault, &result),
             "address of cuTensorMapEncodeTiled");
  if (result != cudaDriverEntryPointSuccess || function == nullptr) {
    throw DeviceError(
        "CUDA: expected a driver with cuTensorMapEncodeTiled, got one without. Update the driver.");
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

}  // namespace

PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encode();
  return encode;
}

CUtensorMapDataType tensor_map_dtype(DType dtype) {
  if (dtype == DType::kF16) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  if (dtype == DType::kBf16) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  HALLEY_CHECK(bits_of(dtype) == 8, dtype);
  return CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

CUtensorMap box_map(const BoxMapOptions& options) {
  const ConstMatrix& matrix = options.matrix;
  const auto element_bytes = static_cast<cuuint64_t>(bits_of(matrix.dtype) / 8);
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.num_cols),
                               static_cast<cuuint64_t>(matrix.num_rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(matrix.row_stride) * element_bytes};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(options.box_cols),
                             static_cast<cuuint32_t>(options.box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result = tensor_map_encoder()(
      &map, tensor_map_dtype(matrix.dtype), 2, const_cast<std::byte*>(matrix.data), sizes, strides,
      box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, options.swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HALLEY_CHECK(result == CUDA_SUCCESS, static_cast<int>(result), matrix.num_rows, matrix.num_cols,
               matrix.row_stride);
  return map;
}

}  // namespace halley
