// For tests: rounding of a value to a floating-point type.
#pragma once

#include "halley/core/dtype.h"
#include "halley/core/float16.h"

namespace halley::cuda {

/// Rounds to nearest even of f16 or bf16; f32 is unchanged.
inline float rounded_to(DType dtype, float value) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return dtype == DType::kBf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

/// The largest relative error of one rounding to f16, bf16 or f32: half an ulp.
inline double half_step_of(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-11;
  return dtype == DType::kBf16 ? 0x1p-8 : 0x1p-24;
}

}  // namespace halley::cuda
