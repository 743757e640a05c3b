// Packed weights against the tables of the PTX ISA, by doing what the decoders do on the host.
#include "halley/cuda/mixed_gemm/mixed_pack.h"

#include <array>
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float16.h"
#include "halley/cuda/mixed_gemm/testing/mixed_test_weight.h"

namespace halley::cuda {
namespace {

using testing::HasSubstr;

constexpr std::array<MixedKind, 6> kKinds = {MixedKind::kU4S8,  MixedKind::kU4GroupS8,
                                             MixedKind::kU4F16, MixedKind::kU4Bf16,
                                             MixedKind::kU8F16, MixedKind::kU8Bf16};

uint32_t word_at(const uint8_t* bytes) {
  uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

uint16_t half_of(uint32_t word, int index) { return static_cast<uint16_t>(word >> (16 * index)); }

/// A thread's registers for 16 inputs (16 bits: a0 to a3) or half of those for 32 (s8: a0 and a1,
/// or a2 and a3), as numbers: [register][element].
struct Registers {
  float values[4][4] = {};
};

Registers decode_s8(uint32_t codes) {
  const uint32_t a[2] = {(codes << 4) & 0xF0F0F0F0u, codes & 0xF0F0F0F0u};
  Registers out;
  for (int i = 0; i < 2; ++i) {
    for (int b = 0; b < 4; ++b) {
      out.values[i][b] = static_cast<int8_t>(static_cast<uint8_t>(a[i] >> (8 * b)));
    }
  }
  return out;
}

Registers decode_group_s8(uint32_t codes, const uint8_t* entry) {
  Registers out;
  for (int i = 0; i < 2; ++i) {
    const uint32_t nibbles = (codes >> (4 * i)) & 0x0F0F0F0Fu;
    const uint32_t scale = entry[2 * i], offset = entry[2 * i + 1] * 0x01010101u;
    const uint32_t a = nibbles * scale + offset;
    for (int b = 0; b < 4; ++b) out.values[i][b] = static_cast<uint8_t>(a >> (8 * b));
  }
  return out;
}

Registers decode_f16(uint32_t codes, const uint8_t* entry) {
  Registers out;
  for (int i = 0; i < 4; ++i) {
    const uint32_t parameters = word_at(entry + i % 2 * 4);
    const float scale = f16_to_f32(half_of(parameters, 0));
    const float zero = f16_to_f32(half_of(parameters, 1));
    const uint32_t shifted = i < 2 ? codes : codes >> 8;
    const uint32_t pair = (shifted & (i % 2 == 0 ? 0x000F000Fu : 0x00F000F0u)) | 0x64006400u;
    for (int e = 0; e < 2; ++e) {
      const float biased = f16_to_f32(half_of(pair, e));
      const float number = i % 2 == 0 ? biased - zero : biased / 16 + zero;
      const float difference = f16_to_f32(f32_to_f16(number));
      out.values[i][e] = f16_to_f32(f32_to_f16(difference * scale));
    }
  }
  return out;
}

Registers decode_bf16(uint32_t codes, const uint8_t* entry) {
  Registers out;
  for (int i = 0; i < 4; ++i) {
    const uint32_t parameters = word_at(entry + i % 2 * 4);
    const float scale = bf16_to_f32(half_of(parameters, 0));
    const float zero = bf16_to_f32(half_of(parameters, 1));
    const uint32_t pair = ((codes >> (4 * i)) & 0x000F000Fu) | 0x43004300u;
    for (int e = 0; e < 2; ++e) {
      const float number = bf16_to_f32(half_of(pair, e)) - zero;
      const float difference = bf16_to_f32(f32_to_bf16(number));
      out.values[i][e] = bf16_to_f32(f32_to_bf16(difference * scale));
    }
  }
  return out;
}

/// prmt of the PTX ISA, without sign replication.
uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    out |= static_cast<uint32_t>(bytes >> (selector >> (4 * i) & 7) * 8 & 255) << (8 * i);
  }
  return out;
}

float f32_of(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// `codes`: two words, each of one row.
Registers decode_u8_f16(const uint8_t* codes, const uint8_t* entry) {
  Registers out;
  for (int i = 0; i < 4; ++i) {
    const uint32_t parameters = word_at(entry + i % 2 * 4);
    const float scale = f16_to_f32(half_of(parameters, 0));
    const float zero = f16_to_f32(half_of(parameters, 1));
    const uint32_t word = word_at(codes + i % 2 * 4);
    const uint32_t pair = permute(word, 0x64646464u, i / 2 == 0 ? 0x4240u : 0x4341u);
    for (int e = 0; e < 2; ++e) {
      const float difference = f16_to_f32(f32_to_f16(f16_to_f32(half_of(pair, e)) - zero));
      out.values[i][e] = f16_to_f32(f32_to_f16(difference * scale));
    }
  }
  return out;
}

Registers decode_u8_bf16(const uint8_t* codes, const uint8_t* entry) {
  Registers out;
  for (int i = 0; i < 4; ++i) {
    const uint32_t parameters = word_at(entry + i % 2 * 4);
    const float scale = f32_of(permute(parameters, 0, 0x1044));
    const float offset = f32_of(permute(parameters, 0x47000000u, 0x7324)) * -scale;
    const uint32_t word = word_at(codes + i % 2 * 4);
    for (int e = 0; e < 2; ++e) {
      const auto byte = static_cast<uint32_t>(i / 2 + 2 * e);
      const float number = f32_of(permute(word, 0x47000000u, 0x7404u + byte * 16));
      out.values[i][e] = bf16_to_f32(f32_to_bf16(std::fma(number, scale, offset)));
    }
  }
  return out;
}

/// One of a thread's words (of 8 bits two) with the parameters that belong to it.
struct Word {
  int64_t n = 0, k = 0;  // of the warp's 16 outputs and of the 16 inputs
  int lane = 0;
  const uint8_t* codes = nullptr;
  const uint8_t* entry = nullptr;
};

Registers decode(MixedKind kind, const uint8_t* codes, const uint8_t* entry) {
  switch (kind) {
    case MixedKind::kU4S8:
      return decode_s8(word_at(codes));
    case MixedKind::kU4GroupS8:
      return decode_group_s8(word_at(codes), entry);
    case MixedKind::kU4F16:
      return decode_f16(word_at(codes), entry);
    case MixedKind::kU4Bf16:
      return decode_bf16(word_at(codes), entry);
    case MixedKind::kU8F16:
      return decode_u8_f16(codes, entry);
    case MixedKind::kU8Bf16:
      return decode_u8_bf16(codes, entry);
  }
  return {};
}

void expect_word(const RandomWeight& weight, const Word& word) {
  const MixedKind kind = weight.source.kind;
  const Registers registers = decode(kind, word.codes, word.entry);
  const int g = word.lane / 4, c = word.lane % 4;
  for (int i = 0; i < (is_s8(kind) ? 2 : 4); ++i) {
    for (int e = 0; e < (is_s8(kind) ? 4 : 2); ++e) {
      // PTX ISA, wgmma, "Register Fragments": .s8 k32 (of its two halves) and .f16 k16.
      const int64_t n = word.n + g + 8 * (i % 2);
      const int64_t k = word.k + (is_s8(kind) ? 4 * c + e : 2 * c + e + 8 * (i / 2));
      if (n >= weight.source.N || k >= weight.source.K) {
        // Outputs behind N are not written; behind K inputs are zero, and any number will do.
        ASSERT_TRUE(std::isfinite(registers.values[i][e])) << n << " " << k;
        continue;
      }
      // Tensor cores see numbers of groups of s8 as u8, 128 too large.
      const float more = kind == MixedKind::kU4GroupS8 ? 128.0f : 0.0f;
      ASSERT_EQ(registers.values[i][e], weight.operand(n, k) + more)
          << kind << " [" << n << ", " << k << "] register " << i << " element " << e;
    }
  }
}

void expect_fragments(const RandomWeight& weight) {
  const MixedSource& source = weight.source;
  const MixedPacked packed = pack_mixed(source);
  const auto bytes = static_cast<size_t>(chunk_bytes(packed.kind, packed.group_size));
  const int64_t columns = (source.K + 127) / 128;
  ASSERT_EQ(packed.chunks.size(), static_cast<size_t>((source.N + 127) / 128 * columns) * bytes);
  for (size_t chunk = 0; chunk * bytes < packed.chunks.size(); ++chunk) {
    const uint8_t* data = packed.chunks.data() + chunk * bytes;
    const int64_t n = static_cast<int64_t>(chunk) / columns * 128;
    const int64_t k = static_cast<int64_t>(chunk) % columns * 128;
    // Each thread's 16 bytes have the words of 64 inputs, of 8 bits those of 32.
    const int words = is_u8(packed.kind) ? 2 : 4;
    for (int index = 0; index < 2048; ++index) {
      const int row = index / 256, lane = index / words % 32;
      const int input = (index % 256 / (32 * words) * words + index % words) * 16;
      const int bytes_a_word = 16 / words;
      const uint8_t* entry = data + 2048 * bytes_a_word +
                             input / packed.group_size * group_bytes(packed.kind) +
                             (row * 8 + lane / 4) * group_entry_bytes(packed.kind);
      expect_word(weight, {.n = n + row * 16,
                           .k = k + input,
                           .lane = lane,
                           .codes = data + index * bytes_a_word,
                           .entry = entry});
    }
  }
}

std::string text_of_throw(const MixedSource& source) {
  try {
    pack_mixed(source);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MixedPack, HoldsEveryCode) {
  for (const MixedKind kind : kKinds) {
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{1, 1}, {127, 129}, {256, 384}}) {
      const RandomWeight weight(kind, N, K, K);
      EXPECT_EQ(unpack_mixed(pack_mixed(weight.source)), weight.codes) << kind << " " << N;
    }
  }
}

TEST(MixedPack, DecodesToTheFragmentsOfWgmma) {
  for (const MixedKind kind : kKinds) {
    expect_fragments(RandomWeight(kind, 130, 250, 250));
    expect_fragments(RandomWeight(kind, 64, 128, 128));
  }
}

TEST(MixedPack, KeepsGroupsOfAllSizes) {
  for (const MixedKind kind : kKinds) {
    if (kind == MixedKind::kU4S8) continue;
    for (const int64_t group_size : {32, 64, 128, 256}) {
      expect_fragments(RandomWeight(kind, 33, 400, group_size));
    }
  }
}

TEST(MixedPack, MakesOffsetsOfZeros) {
  const std::vector<uint8_t> codes = {1, 2};
  const std::vector<float> scales = {0.5f, 2.0f}, zeros = {8, 10.5f};
  const MixedPacked packed = pack_mixed(
      {.N = 2, .K = 1, .group_size = 1, .codes = codes, .scales = scales, .zeros = zeros});
  EXPECT_EQ(packed.w_scales, scales);
  EXPECT_EQ(packed.w_offsets, (std::vector<float>{0, 5}));
}

TEST(MixedPack, HasNoOffsetsWhereAllZerosAreEight) {
  const std::vector<uint8_t> codes = {1, 2};
  const std::vector<float> scales = {0.5f, 2.0f}, zeros = {8, 8};
  EXPECT_THAT(
      pack_mixed(
          {.N = 2, .K = 1, .group_size = 1, .codes = codes, .scales = scales, .zeros = zeros})
          .w_offsets,
      testing::IsEmpty());
}

TEST(MixedPack, RejectsCodesAbove15) {
  RandomWeight weight(MixedKind::kU4F16, 2, 64, 32);
  weight.codes[64 + 40] = 16;
  EXPECT_THAT(text_of_throw(weight.source),
              HasSubstr("output 1, group 1: expected codes from 0 to 15, got 16"));
}

TEST(MixedPack, DecodesEveryCodeOf8BitsWithZerosAtTheEnds) {
  for (const MixedKind kind : kMixedU8Kinds) {
    for (const int zero : {0, 1, 127, 128, 255, 256}) {
      RandomWeight weight(kind, 16, 256, 128);
      weight.set_all({.zero = zero});
      for (size_t i = 0; i < weight.codes.size(); ++i) weight.codes[i] = static_cast<uint8_t>(i);
      for (size_t i = 0; i < weight.scales.size(); ++i) {
        weight.scales[i] = (i % 2 == 0 ? 0x1.FEp-9f : -0x1.02p4f);
      }
      expect_fragments(weight);
    }
  }
}

TEST(MixedPack, ZerosOf8BitsAre128WhereThereAreNone) {
  for (const MixedKind kind : kMixedU8Kinds) {
    const std::vector<uint8_t> codes = {0, 128, 255};
    const std::vector<float> scales = {0.5f};
    const MixedPacked packed = pack_mixed(
        {.kind = kind, .N = 1, .K = 3, .group_size = 3, .codes = codes, .scales = scales});
    EXPECT_EQ(unpack_mixed_row(packed, 0), (std::vector<float>{-64, 0, 63.5f})) << kind;
  }
}

TEST(MixedPack, RejectsScalesThatLeaveF32) {
  RandomWeight weight(MixedKind::kU8Bf16, 2, 64, 32);
  weight.scales[2] = -0x1p112f;
  EXPECT_THAT(
      text_of_throw(weight.source),
      HasSubstr("weight of 8 bits (u8_bf16), output 1, group 0: expected a scale of at most "
                "2^111"));
}

TEST(MixedPack, RejectsZerosAbove256) {
  RandomWeight weight(MixedKind::kU8F16, 2, 64, 32);
  weight.zeros[3] = 257;
  EXPECT_THAT(text_of_throw(weight.source),
              HasSubstr("expected a zero point that is an integer from 0 to 256, got 257"));
}

TEST(MixedPack, RejectsZerosThatAreNoIntegers) {
  RandomWeight weight(MixedKind::kU4F16, 2, 64, 32);
  weight.zeros[3] = 7.5f;
  EXPECT_THAT(text_of_throw(weight.source),
              HasSubstr("output 1, group 1: expected a zero point that is an integer from 0 to 16, "
                        "got 7.5"));
}

TEST(MixedPack, RejectsScalesThatF16HasNot) {
  RandomWeight weight(MixedKind::kU4F16, 2, 64, 32);
  weight.scales[2] = 1e6f;
  EXPECT_THAT(text_of_throw(weight.source),
              HasSubstr("output 1, group 0: expected a scale that f16 has, got 1e+06"));
}

TEST(MixedPack, RejectsGroupsThatLeaveS8) {
  RandomWeight weight(MixedKind::kU4GroupS8, 1, 128, 128);
  weight.group_scales[0] = 17;
  weight.zeros[0] = 7;
  weight.codes[5] = 15;
  EXPECT_THAT(text_of_throw(weight.source), HasSubstr("expected 17 * (code - 7) in [-128, 127]"));
}

TEST(MixedPack, RejectsOddGroups) {
  const RandomWeight weight(MixedKind::kU4F16, 1, 128, 48);
  EXPECT_THAT(text_of_throw(weight.source),
              HasSubstr("groups of 48 inputs, neither 32, 64 nor a multiple of 128"));
}

TEST(MixedPack, RejectsGroupsWhereARowHasOneScale) {
  EXPECT_EQ(why_not_mixed(MixedKind::kU4S8, 256, 128), "groups of 128 inputs, not one a row");
}

TEST(MixedPack, RejectsSumsThatLeave32Bits) {
  EXPECT_EQ(why_not_mixed(MixedKind::kU4S8, 131071, 131071), "");
  EXPECT_THAT(why_not_mixed(MixedKind::kU4GroupS8, 131072, 128), HasSubstr("K 131072 is above"));
}

TEST(MixedPack, RowsAreTheNumbersThatAreMultiplied) {
  for (const MixedKind kind : kKinds) {
    const RandomWeight weight(kind, 139, 261, kind == MixedKind::kU4S8 ? 261 : 64);
    const MixedPacked packed = pack_mixed(weight.source);
    for (int64_t n = 0; n < 139; ++n) {
      const std::vector<float> row = unpack_mixed_row(packed, n);
      ASSERT_EQ(row.size(), 261U);
      for (int64_t k = 0; k < 261; ++k) {
        // Tensor cores see 16 times the code of kU4S8.
        const float unit = kind == MixedKind::kU4S8 ? 16.0f : 1.0f;
        ASSERT_EQ(unit * row[static_cast<size_t>(k)], weight.operand(n, k))
            << kind << " [" << n << ", " << k << "]";
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
