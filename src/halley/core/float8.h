// The 8-bit float e4m3 (finite variant: 4 exponent bits with bias 7, 3 mantissa bits, no infinity,
// NaN is 0x7F and 0xFF, largest value 448), converted in software.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace halley {

inline constexpr float kE4m3Max = 448.0f;

/// Exact.
inline float e4m3_to_f32(uint8_t code) {
  const uint32_t magnitude = code & 0x7Fu;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  if (magnitude == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000u);
  // Exponent and mantissa shifted to the bits that f32 has for them are the value times 2^-120,
  // subnormals included.
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

/// To the nearest, ties to even; beyond +-448 saturates, NaN stays NaN.
inline uint8_t f32_to_e4m3(float value) {
  const auto sign = static_cast<uint8_t>((std::bit_cast<uint32_t>(value) >> 24) & 0x80u);
  if (std::isnan(value)) return sign | 0x7Fu;
  const float magnitude = std::fabs(value);
  if (magnitude >= kE4m3Max) return sign | 0x7Eu;
  if (magnitude < 0x1p-6f) {  // subnormal: multiples of 2^-9; 8 of them are the smallest normal
    return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 0x1p9f));
  }
  uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  bits += 0x7FFFFu + ((bits >> 20) & 1u);
  const uint32_t code = (bits >> 20) - (120u << 3);
  return sign | static_cast<uint8_t>(code < 0x7Eu ? code : 0x7Eu);
}

}  // namespace halley
