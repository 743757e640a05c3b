// From an accumulator to the value before the activation: all kernels round in this order, so that
// integers give the same bits in each.
#pragma once

#include "halley/cuda/grouped_gemm/grouped_shape.h"

namespace halley::cuda {

/// w_scale, w_offset and bias of the output, x_scale and x_sum (of the row's values) of the token;
/// only bias where kKind has no scales. As finish_four() (mma_epilogue.cuh).
template <GroupedKind kKind, typename Sum>
__device__ __forceinline__ float finished_sum(Sum sum, float w_scale, float w_offset, float bias,
                                              float x_scale, float x_sum) {
  if constexpr (has_scales(kKind)) {
    // Values of kU4S8 are multiplied as 16 times the number.
    constexpr float kFactor = kKind == GroupedKind::kU4S8 ? 0.0625f : 1.0f;
    float scaled = __fmul_rn(w_scale, kFactor * static_cast<float>(sum));
    scaled = fmaf(-w_offset, x_sum, scaled);
    return fmaf(x_scale, scaled, bias);
  } else {
    return sum + bias;
  }
}

}  // namespace halley::cuda
