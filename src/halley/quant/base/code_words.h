// Unpacks codes of 2, 3, 4 and 8 bits from the little-endian words of checkpoints (qweight) into
// the bytes that StoredWeight::read_codes() writes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "halley/core/packed_weight.h"

namespace halley {

/// Element `index` of an array that need not be aligned.
template <typename Word>
Word load_word(const std::byte* words, int64_t index) {
  Word word;
  std::memcpy(&word, words + static_cast<size_t>(index) * sizeof(Word), sizeof(Word));
  return word;
}

/// Code `index` of a stream of codes, each in the next `bits` bits; a code crosses words where
/// `bits` does not divide 32. Reads only words that hold bits of the code.
inline uint32_t code_of_stream(const std::byte* words, int64_t index, int bits) {
  const int64_t first_bit = index * bits;
  const int64_t word = first_bit / 32;
  const auto shift = static_cast<int>(first_bit % 32);
  uint32_t code = load_word<uint32_t>(words, word) >> shift;
  if (shift + bits > 32) code |= load_word<uint32_t>(words, word + 1) << (32 - shift);
  return code & ((1u << bits) - 1);
}

/// Spreads the four codes in the low 4 * kBits bits to one byte each, the lowest first.
template <int kBits>
constexpr uint32_t spread_quad(uint32_t codes) {
  static_assert(kBits >= 2 && kBits <= 8);
  constexpr uint32_t kPairMask = ((1u << (2 * kBits)) - 1) * 0x00010001u;
  constexpr uint32_t kCodeMask = ((1u << kBits) - 1) * 0x01010101u;
  const uint32_t pairs = (codes | (codes << (16 - 2 * kBits))) & kPairMask;
  return (pairs | (pairs << (8 - kBits))) & kCodeMask;
}

/// The codes of 32 inputs and up to kPanelRows output features, as a format's module unpacks them:
/// quads[q][row] has the inputs 4q to 4q + 3 of a row, the first in the lowest byte.
struct UnitCodes {
  alignas(64) uint32_t quads[kQuadUnitInputs / 4][kPanelRows];

  /// Writes the first `num_inputs` inputs of the rows [row_begin, row_begin + num_rows) to the
  /// bytes that code_at() gives for a block that begins with this unit.
  void write(int64_t row_begin, int64_t num_rows, int64_t num_inputs, uint8_t* out) const {
    const auto row_bytes = static_cast<size_t>(num_rows) * 4;
    for (int64_t quad = 0; quad < std::min(num_inputs, kQuadUnitInputs) / 4; ++quad) {
      std::memcpy(out + quad * kQuadValues, &quads[quad][row_begin], row_bytes);
    }
    const int64_t num_whole = num_inputs / 4;
    if (num_whole >= kQuadUnitInputs / 4) return;
    for (int64_t row = 0; row < num_rows; ++row) {
      std::memcpy(out + num_whole * kQuadValues + row * 4, &quads[num_whole][row_begin + row],
                  static_cast<size_t>(num_inputs % 4));
    }
  }
};

}  // namespace halley
