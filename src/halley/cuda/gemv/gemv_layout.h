// Where the codes of a weight of few bits lie, in the order in which the lanes of a warp take them.
// Pure functions of the host and the device.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define HALLEY_ON_BOTH __host__ __device__
#else
#define HALLEY_ON_BOTH
#endif

namespace halley::cuda {

/// What codes are multiplied with: f16 and bf16 share a layout.
enum class GemvInputs : uint8_t { kNumbers, kS8 };

/// A warp has 16 outputs (a tile) by 8 rows of x at once, and takes 128 inputs (a piece) of them.
inline constexpr int kGemvTileOutputs = 16;
inline constexpr int kGemvPieceInputs = 128;
/// Inputs that share scales: a multiple of a piece, or one of its parts of this many.
inline constexpr int kGemvGroupMin = 32;

/// The words that a lane has of one tile and piece.
constexpr int gemv_lane_words(int bits) { return 2 * bits; }
constexpr int gemv_piece_bytes(int bits) { return 32 * 4 * gemv_lane_words(bits); }

/// Where in a piece a lane's word lies: as many vectors of four words as there are, then a pair.
HALLEY_ON_BOTH constexpr int gemv_word_offset(int bits, int word, int lane) {
  const int full = gemv_lane_words(bits) / 4;
  return word / 4 < full ? word / 4 * 512 + lane * 16 + word % 4 * 4
                         : full * 512 + lane * 8 + word % 2 * 4;
}

/// Some bits of one code in a lane's word: bits `low` to low + count - 1, from bit `shift` on.
struct GemvSlot {
  int output;  // within the tile
  int input;   // within the piece
  int low, count, shift;
};

/// Slots of a word: 32 / count of them.
HALLEY_ON_BOTH constexpr int gemv_slot_bits(int bits, int word) {
  return bits == 3 ? (word < 4 ? 2 : 1) : bits;
}

namespace gemv_layout_internal {

/// Eight inputs of two outputs, a step of 32: register r has inputs 2r and 2r + 1 in its halves.
HALLEY_ON_BOTH constexpr GemvSlot number_slot(int lane, int step, int r, int half, int row) {
  return {row * 8 + lane / 4, step * 32 + lane % 4 * 8 + 2 * r + half, 0, 0, 0};
}

/// 16 inputs of two outputs, a step of 64: register r has inputs 4r to 4r + 3 in its bytes.
HALLEY_ON_BOTH constexpr GemvSlot s8_slot(int lane, int step, int r, int byte, int row) {
  return {row * 8 + lane / 4, step * 64 + lane % 4 * 16 + 4 * r + byte, 0, 0, 0};
}

}  // namespace gemv_layout_internal

/// Slot i of a lane's word. Numbers of 8, 3, 2 or 1 bits; of s8 2 or 1.
HALLEY_ON_BOTH constexpr GemvSlot gemv_slot(GemvInputs inputs, int bits, int lane, int word,
                                            int i) {
  using gemv_layout_internal::number_slot;
  using gemv_layout_internal::s8_slot;
  GemvSlot slot = {};
  int low = 0, shift = 0;
  const int count = gemv_slot_bits(bits, word);
  if (inputs == GemvInputs::kS8) {
    if (count == 2) {
      slot = s8_slot(lane, word / 2, i % 4, i / 4, word % 2);
    } else {
      slot = s8_slot(lane, word, i % 4, i / 8, i / 4 % 2);
    }
    shift = i * count;
  } else if (count == 8) {
    // Bytes 0 and 2 are the halves of a register, and so are 1 and 3.
    slot = number_slot(lane, word / 4, word % 2 * 2 + i % 2, i / 2, word / 2 % 2);
    shift = 8 * i;
  } else if (count == 2) {
    slot = number_slot(lane, word, i % 8 / 2, i / 8, i % 2);
    shift = 2 * i;
  } else {
    const int plane_word = bits == 3 ? word - 4 : word;
    slot = number_slot(lane, 2 * plane_word + i % 16 / 8, i % 8 / 2, i / 16, i % 2);
    low = bits == 3 ? 2 : 0;
    shift = i;
  }
  return {slot.output, slot.input, low, count, shift};
}

}  // namespace halley::cuda

#undef HALLEY_ON_BOTH
