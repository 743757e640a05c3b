// For tests: what rounding to a type does to a number.
#pragma once

#include "halley/core/dtype.h"
#include "halley/core/float16.h"

namespace halley::cuda {

/// To nearest even of f16 or bf16; of f32 the number itself.
inline float rounded_to(DType dtype, float value) {
  if (dtype == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return dtype == DType::kBf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

/// The largest error of one rounding to f16, bf16 or f32, relative to the number: half a step.
inline double half_step_of(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-11;
  return dtype == DType::kBf16 ? 0x1p-8 : 0x1p-24;
}

}  // namespace halley::cuda
