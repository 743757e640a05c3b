// The scale and zero of one row of the quantized KV cache, from the row's extremes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "halley/core/float16.h"

namespace halley {

/// The scale and zero that the page stores for a row of int8 or int4.
struct IntRowScale {
  uint16_t scale = 0;  // f16 bits, > 0
  uint16_t zero = 0;   // f16 bits: the value of q = 0
};

inline constexpr float kF16Max = 65504.0f;

/// The largest f16 that is at most `value`. Requires |value| <= kF16Max.
inline uint16_t f16_at_most(float value) {
  const uint16_t bits = f32_to_f16(value);
  if (f16_to_f32(bits) <= value) return bits;
  return static_cast<uint16_t>(bits >= 0x8000u ? bits + 1 : bits - 1);
}

/// The smallest f16 that is at least `value`. Requires 0 <= value <= kF16Max.
inline uint16_t f16_at_least(float value) {
  const uint16_t bits = f32_to_f16(value);
  return f16_to_f32(bits) >= value ? bits : static_cast<uint16_t>(bits + 1);
}

/// zero = the largest f16 <= min; scale = the smallest f16 >= (max - zero) / top_code, and not 0.
/// Rounding away from the row's inside keeps all of the row between q = 0 and q = top_code.
/// Requires finite min <= max; values beyond f16's range count as its largest.
inline IntRowScale int_row_scale(float min, float max, float top_code) {
  // + 0: of 0 and -0, which are equal, either may have been found as an extreme.
  const uint16_t zero = f16_at_most(std::clamp(min, -kF16Max, kF16Max) + 0.0f);
  const float range = std::clamp(max, -kF16Max, kF16Max) + 0.0f - f16_to_f32(zero);
  return {std::max<uint16_t>(f16_at_least(range / top_code), 1), zero};
}

inline constexpr float kE4M3Max = 448.0f;

/// The scale that the page stores for a row of fp8 without a scale of its layer. It is never 0, so
/// that a row of zeros needs no exception.
inline float fp8_row_scale(float largest_magnitude) {
  return std::max(largest_magnitude / kE4M3Max, std::numeric_limits<float>::min());
}

}  // namespace halley
