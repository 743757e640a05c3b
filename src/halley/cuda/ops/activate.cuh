// The elementwise functions of MLPs on one number.
#pragma once

#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// f(x) in f32; the limit 0 at -infinity.
__device__ inline float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x == -INFINITY ? 0.0f : x / (1.0f + __expf(-x));
    case Activation::kGeluTanh: {
      constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
      const float u = kRoot * (x + 0.044715f * x * x * x);
      return x == -INFINITY ? 0.0f : x / (1.0f + __expf(-2.0f * u));
    }
    case Activation::kGeluErf:
      return x == -INFINITY ? 0.0f : 0.5f * x * erfcf(x * -0.7071067811865476f);
    case Activation::kRelu:
      return x < 0 ? 0.0f : x;
  }
  return x;
}

}  // namespace halley::cuda
