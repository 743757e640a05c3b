#include "halley/quant/gguf/block_layout.h"

#include <array>
#include <bit>

#include "halley/base/check.h"
#include "halley/core/float16.h"

namespace halley {
namespace {

constexpr int64_t kUnit = kQuadUnitInputs;  // 32, which is also the smallest block
constexpr int64_t kHalf = kUnit / 2;

uint16_t load_u16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] | bytes[1] << 8); }

float load_f16(const uint8_t* bytes) { return f16_to_f32(load_u16(bytes)); }

/// Value i of 16 bytes in which the low nibbles are the first 16 values.
uint8_t nibble(const uint8_t* bytes, int64_t i) {
  return i < kHalf ? bytes[i] & 15 : bytes[i - kHalf] >> 4;
}

// ---- blocks of 32 -------------------------------------------------------------------------------

/// Nibbles behind `kBegin` bytes.
template <int64_t kBegin>
void read_nibbles(const uint8_t* block, int64_t, uint8_t* codes) {
  for (int64_t i = 0; i < kUnit; ++i) codes[i] = nibble(block + kBegin, i);
}

/// Nibbles, and 32 fifth bits before them.
template <int64_t kBegin>
void read_5_bits(const uint8_t* block, int64_t, uint8_t* codes) {
  const uint8_t* high = block + kBegin;
  for (int64_t i = 0; i < kUnit; ++i) {
    const int bit = high[i / 8] >> (i % 8) & 1;
    codes[i] = static_cast<uint8_t>(nibble(high + 4, i) | bit << 4);
  }
}

void read_q8_0(const uint8_t* block, int64_t, uint8_t* codes) {
  for (int64_t i = 0; i < kUnit; ++i) codes[i] = block[2 + i] ^ 0x80;  // plus 128
}

/// An f16 scale and a fixed zero point.
template <int kZero>
void read_scale(const uint8_t* block, float* groups) {
  groups[0] = load_f16(block);
  groups[1] = kZero;
}

/// w = scale * code + min.
void read_scale_and_min(const uint8_t* block, float* groups) {
  groups[0] = load_f16(block);
  groups[1] = -load_f16(block + 2);
}

// ---- tables of 16 values ------------------------------------------------------------------------

constexpr int kTableZero = 128;
constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
/// Twice the values of e2m1; the scale is half of the block's.
constexpr std::array<int8_t, 16> kFp4Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                               0, -1, -2, -3, -4, -6, -8, -12};

void look_up(const std::array<int8_t, 16>& values, const uint8_t* nibbles, uint8_t* codes) {
  for (int64_t i = 0; i < kUnit; ++i) {
    codes[i] = static_cast<uint8_t>(values[nibble(nibbles, i)] + kTableZero);
  }
}

void read_iq4_nl(const uint8_t* block, int64_t, uint8_t* codes) {
  look_up(kIq4Values, block + 2, codes);
}

void read_iq4_xs(const uint8_t* block, int64_t unit, uint8_t* codes) {
  look_up(kIq4Values, block + 8 + unit * kHalf, codes);
}

void read_iq4_xs_groups(const uint8_t* block, float* groups) {
  const float scale = load_f16(block);
  const int high = load_u16(block + 2);
  for (int g = 0; g < 8; ++g) {
    const int six = (block[4 + g / 2] >> (g % 2 * 4) & 15) | (high >> (2 * g) & 3) << 4;
    groups[2 * g] = scale * static_cast<float>(six - 32);
    groups[2 * g + 1] = kTableZero;
  }
}

void read_mxfp4(const uint8_t* block, int64_t, uint8_t* codes) {
  look_up(kFp4Values, block + 1, codes);
}

/// 2^(e - 128); the two smallest are f32 subnormals.
void read_mxfp4_groups(const uint8_t* block, float* groups) {
  const uint32_t e = block[0];
  groups[0] = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  groups[1] = kTableZero;
}

// ---- super-blocks of 256 ------------------------------------------------------------------------

/// Field of 2 bits of value i of unit `unit`: 32 bytes hold the values of four units.
int two_bits(const uint8_t* fields, int64_t unit, int64_t i) {
  return fields[unit / 4 * kUnit + i] >> (unit % 4 * 2) & 3;
}

// scales 16 x (4 bits, 4 bits of minimum), values of 2 bits [64], d, dmin
void read_q2_k(const uint8_t* block, int64_t unit, uint8_t* codes) {
  for (int64_t i = 0; i < kUnit; ++i) {
    codes[i] = static_cast<uint8_t>(two_bits(block + 16, unit, i));
  }
}

void read_q2_k_groups(const uint8_t* block, float* groups) {
  const float scale = load_f16(block + 80), min_scale = load_f16(block + 82);
  for (int g = 0; g < 16; ++g) {
    groups[2 * g] = scale * static_cast<float>(block[g] & 15);
    groups[2 * g + 1] = min_scale * static_cast<float>(block[g] >> 4);
  }
}

// third bits [32], values of 2 bits [64], scales of 6 bits [12], d
void read_q3_k(const uint8_t* block, int64_t unit, uint8_t* codes) {
  for (int64_t i = 0; i < kUnit; ++i) {
    codes[i] = static_cast<uint8_t>(two_bits(block + 32, unit, i) | (block[i] >> unit & 1) << 2);
  }
}

void read_q3_k_groups(const uint8_t* block, float* groups) {
  const float scale = load_f16(block + 108);
  const uint8_t* fields = block + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = fields[g % 8] >> (g / 8 * 4) & 15;
    const int high = fields[8 + g % 4] >> (g / 4 * 2) & 3;
    groups[2 * g] = scale * static_cast<float>((low | high << 4) - 32);
    groups[2 * g + 1] = 4;
  }
}

/// Scale and minimum of 6 bits of the 8 groups of Q4_K and Q5_K; d, dmin, fields [12].
void read_q4_k_groups(const uint8_t* block, float* groups) {
  const float scale = load_f16(block), min_scale = load_f16(block + 2);
  const uint8_t* fields = block + 4;
  for (int g = 0; g < 8; ++g) {
    int six = fields[g] & 63, min = fields[g + 4] & 63;
    if (g >= 4) {
      six = (fields[g + 4] & 15) | fields[g - 4] >> 6 << 4;
      min = fields[g + 4] >> 4 | fields[g] >> 6 << 4;
    }
    groups[2 * g] = scale * static_cast<float>(six);
    groups[2 * g + 1] = min_scale * static_cast<float>(min);
  }
}

/// 32 bytes hold the nibbles of two units, the first in the low halves.
uint8_t nibble_of_pair(const uint8_t* nibbles, int64_t unit, int64_t i) {
  return nibbles[unit / 2 * kUnit + i] >> (unit % 2 * 4) & 15;
}

void read_q4_k(const uint8_t* block, int64_t unit, uint8_t* codes) {
  for (int64_t i = 0; i < kUnit; ++i) codes[i] = nibble_of_pair(block + 16, unit, i);
}

// d, dmin, fields [12], fifth bits [32], nibbles [128]
void read_q5_k(const uint8_t* block, int64_t unit, uint8_t* codes) {
  for (int64_t i = 0; i < kUnit; ++i) {
    const int bit = block[16 + i] >> unit & 1;
    codes[i] = static_cast<uint8_t>(nibble_of_pair(block + 48, unit, i) | bit << 4);
  }
}

// nibbles [128], high pairs of bits [64], scales i8 [16], d
void read_q6_k(const uint8_t* block, int64_t unit, uint8_t* codes) {
  const uint8_t* nibbles = block + unit / 4 * 64 + unit % 2 * kUnit;
  const int64_t shift = unit % 4 / 2 * 4;
  for (int64_t i = 0; i < kUnit; ++i) {
    const int low = nibbles[i] >> shift & 15;
    codes[i] = static_cast<uint8_t>(low | two_bits(block + 128, unit, i) << 4);
  }
}

void read_q6_k_groups(const uint8_t* block, float* groups) {
  const float scale = load_f16(block + 208);
  for (int g = 0; g < 16; ++g) {
    groups[2 * g] = scale * static_cast<float>(static_cast<int8_t>(block[192 + g]));
    groups[2 * g + 1] = 32;
  }
}

constexpr std::array kLayouts = {
    BlockLayout{GgmlType::kQ4_0, PackedLayout::kU4Quad, 4, 32, ZeroKind::kPoint, read_nibbles<2>,
                read_scale<8>},
    BlockLayout{GgmlType::kQ4_1, PackedLayout::kU4Quad, 4, 32, ZeroKind::kOffset, read_nibbles<4>,
                read_scale_and_min},
    BlockLayout{GgmlType::kQ5_0, PackedLayout::kU8Quad, 8, 32, ZeroKind::kPoint, read_5_bits<2>,
                read_scale<16>},
    BlockLayout{GgmlType::kQ5_1, PackedLayout::kU8Quad, 8, 32, ZeroKind::kOffset, read_5_bits<4>,
                read_scale_and_min},
    BlockLayout{GgmlType::kQ8_0, PackedLayout::kU8Quad, 8, 32, ZeroKind::kPoint, read_q8_0,
                read_scale<128>},
    BlockLayout{GgmlType::kQ2K, PackedLayout::kU2Quad, 2, 16, ZeroKind::kOffset, read_q2_k,
                read_q2_k_groups},
    BlockLayout{GgmlType::kQ3K, PackedLayout::kU3Quad, 3, 16, ZeroKind::kPoint, read_q3_k,
                read_q3_k_groups},
    BlockLayout{GgmlType::kQ4K, PackedLayout::kU4Quad, 4, 32, ZeroKind::kOffset, read_q4_k,
                read_q4_k_groups},
    BlockLayout{GgmlType::kQ5K, PackedLayout::kU8Quad, 8, 32, ZeroKind::kOffset, read_q5_k,
                read_q4_k_groups},
    BlockLayout{GgmlType::kQ6K, PackedLayout::kU8Quad, 8, 16, ZeroKind::kPoint, read_q6_k,
                read_q6_k_groups},
    BlockLayout{GgmlType::kIq4Nl, PackedLayout::kU8Quad, 8, 32, ZeroKind::kPoint, read_iq4_nl,
                read_scale<kTableZero>},
    BlockLayout{GgmlType::kIq4Xs, PackedLayout::kU8Quad, 8, 32, ZeroKind::kPoint, read_iq4_xs,
                read_iq4_xs_groups},
    BlockLayout{GgmlType::kMxfp4, PackedLayout::kU8Quad, 8, 32, ZeroKind::kPoint, read_mxfp4,
                read_mxfp4_groups},
};

}  // namespace

const BlockLayout& block_layout_of(GgmlType type) {
  for (const BlockLayout& layout : kLayouts) {
    if (layout.type == type) return layout;
  }
  HALLEY_CHECK(false, static_cast<uint32_t>(type));
  return kLayouts[0];
}

}  // namespace halley
