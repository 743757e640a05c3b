// The scales of a product applied to one sum.
#pragma once

#include "halley/cuda/gemm/gemm_scales.h"

namespace halley::cuda {

/// RowScales's formula for row m and output n; `bias` may be null.
__device__ inline float scaled_sum(const RowScales& scales, const float* bias, float sum, int64_t m,
                                   int64_t n) {
  float value = sum;
  if (scales.w_scales != nullptr) value *= scales.w_scales[scales.is_w_tensor ? 0 : n];
  if (scales.w_offsets != nullptr) {
    value = fmaf(-scales.w_offsets[n], static_cast<float>(scales.x_sums[m]), value);
  }
  if (scales.x_scales != nullptr) value *= scales.x_scales[scales.is_x_tensor ? 0 : m];
  return bias == nullptr ? value : value + bias[n];
}

}  // namespace halley::cuda
