// An f16 value of magnitude at most 1.75 as two bytes, of which the upper one alone is the value
// rounded to e4m3, times 2^8 (Lee et al. 2025, arXiv 2506.02024, section 4.2).
#pragma once

#include <cstdint>

namespace halley {

/// f16 has the bits  s 0 eeee mmm mmmmmmm  where its magnitude is below 2. `upper` is s, then
/// eeeemmm rounded to nearest even by the seven bits behind it; a carry may run into the exponent.
/// `lower` is the low 8 bits, the last of the three m included: it tells whether `upper` was
/// rounded upwards.
struct NestedFloat {
  uint8_t upper = 0;
  uint8_t lower = 0;
  friend bool operator==(const NestedFloat&, const NestedFloat&) = default;
};

/// Bits of 1.75, the largest magnitude. The seven bits behind its eeeemmm are zero, so that it and
/// all below round to at most 0x7E: the NaN 0x7F of e4m3 is out of reach. (The smallest magnitude
/// that would round to it is 0x3F41, 1.814.)
inline constexpr uint32_t kNestedMagnitudeMax = 0x3F00;
/// upper means e4m3(upper) * kNestedUpperScale.
inline constexpr float kNestedUpperScale = 0x1p-8f;

/// False for infinities and NaN too.
inline bool can_split_f16(uint16_t bits) { return (bits & 0x7FFFu) <= kNestedMagnitudeMax; }

/// Only where can_split_f16().
inline NestedFloat split_f16(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7FFFu;
  const uint32_t rounded = (magnitude + 0x3Fu + ((magnitude >> 7) & 1u)) >> 7;
  return {static_cast<uint8_t>(((bits >> 8) & 0x80u) | rounded), static_cast<uint8_t>(bits)};
}

/// The reverse. The last bit of `upper` is that of `lower` plus one where it was rounded upwards:
/// subtracting the latter restores the bits above the last one.
inline uint16_t join_f16(NestedFloat nested) {
  const uint32_t high = (uint32_t{nested.upper} - (nested.lower >> 7)) & 0x7Eu;
  return static_cast<uint16_t>((nested.upper & 0x80u) << 8 | high << 7 | nested.lower);
}

/// Whether split_f16() gives these bytes for some f16 value.
inline bool is_split_f16(NestedFloat nested) {
  const uint16_t bits = join_f16(nested);
  return can_split_f16(bits) && split_f16(bits) == nested;
}

}  // namespace halley
