// Loads and stores of the number types that products read and write.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "halley/core/dtype.h"

namespace halley::cuda {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
/// Codes of e4m3 are kept in this type, so that they are not taken for numbers.
struct E4m3Code {
  uint8_t bits;
};
__device__ inline float to_float(E4m3Code x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3)));
}

/// Element `index` of an array of f16, bf16 or f32, rounded to nearest even.
__device__ inline void store_number(void* array, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kF16:
      static_cast<__half*>(array)[index] = __float2half_rn(value);
      return;
    case DType::kBf16:
      static_cast<__nv_bfloat16*>(array)[index] = __float2bfloat16_rn(value);
      return;
    default:
      static_cast<float*>(array)[index] = value;
  }
}

}  // namespace halley::cuda
