// The 4-bit float e2m1 (OCP Microscaling Formats: 2 exponent bits with bias 1, 1 mantissa bit, no
// infinity and no NaN, largest value 6), converted in software, and the 8-bit scale e8m0.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace halley {

/// Twice the value of each code: whole numbers.
inline constexpr std::array<int8_t, 16> kE2m1Halves = {0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};

/// Exact; bits above the lowest four do not count. The zero of code 8 has no sign.
inline float e2m1_to_f32(uint8_t code) {
  return 0.5f * static_cast<float>(kE2m1Halves[code & 15u]);
}

/// 2^(code - 127), exact; 0xFF is NaN.
inline float e8m0_to_f32(uint8_t code) {
  if (code == 0xFF) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(code == 0 ? 0x00400000u : uint32_t{code} << 23);
}

}  // namespace halley
