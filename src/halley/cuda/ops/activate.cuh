// The functions of MLPs for one element, written so that all kernels with them give the same bits.
#pragma once

#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

__device__ inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x == -INFINITY ? 0.0f : __fdiv_rn(x, 1.0f + __expf(-x));
    case Activation::kGeluTanh: {
      constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
      const float cube = __fmul_rn(__fmul_rn(0.044715f, x), __fmul_rn(x, x));
      const float u = __fmul_rn(kRoot, __fadd_rn(x, cube));
      return x == -INFINITY ? 0.0f : __fdiv_rn(x, 1.0f + __expf(-2.0f * u));
    }
    case Activation::kGeluErf:
      return x == -INFINITY ? 0.0f : 0.5f * x * erfcf(x * -0.7071067811865476f);
    case Activation::kRelu:
      return x < 0 ? 0.0f : x;
  }
  return x;
}

__device__ inline float4 product_of(float4 x, float4 y) {
  return {__fmul_rn(x.x, y.x), __fmul_rn(x.y, y.y), __fmul_rn(x.z, y.z), __fmul_rn(x.w, y.w)};
}

}  // namespace halley::cuda
