// MLP activation functions of one element. All kernels call these and get the same bits.
#pragma once

#include <type_traits>

#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// SiLU and tanh-GELU use __fdividef, with an error of about 2 ulp. It returns 0 for a divisor of
/// 2^126 or more, infinity included: that is x below -87, whose result rounds to 0 in 16 bits
/// anyway.
__device__ inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x == -INFINITY ? 0.0f : __fdividef(x, 1.0f + __expf(-x));
    case Activation::kGeluTanh: {
      constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
      const float cube = __fmul_rn(__fmul_rn(0.044715f, x), __fmul_rn(x, x));
      const float u = __fmul_rn(kRoot, __fadd_rn(x, cube));
      return x == -INFINITY ? 0.0f : __fdividef(x, 1.0f + __expf(-2.0f * u));
    }
    case Activation::kGeluErf:
      return x == -INFINITY ? 0.0f : 0.5f * x * erfcf(x * -0.7071067811865476f);
    case Activation::kRelu:
      return x < 0 ? 0.0f : x;
  }
  return x;
}

/// Calls body(integral_constant of the activation): one branch for many elements.
template <typename Body>
__device__ inline void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kSilu:
      return body(std::integral_constant<Activation, Activation::kSilu>());
    case Activation::kGeluTanh:
      return body(std::integral_constant<Activation, Activation::kGeluTanh>());
    case Activation::kGeluErf:
      return body(std::integral_constant<Activation, Activation::kGeluErf>());
    case Activation::kRelu:
      return body(std::integral_constant<Activation, Activation::kRelu>());
  }
}

__device__ inline float4 mul_vec4(float4 x, float4 y) {
  return {__fmul_rn(x.x, y.x), __fmul_rn(x.y, y.y), __fmul_rn(x.z, y.z), __fmul_rn(x.w, y.w)};
}

}  // namespace halley::cuda
