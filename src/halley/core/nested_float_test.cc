// All 65,536 bit patterns of f16 as two bytes, against the conversions of float8.h.
#include "halley/core/nested_float.h"

#include <cmath>

#include <gtest/gtest.h>

#include "halley/core/float16.h"
#include "halley/core/float8.h"

namespace halley {
namespace {

constexpr int kNumPatterns = 65536;

TEST(NestedFloat, SplitsWhatIsAtMostOneAndThreeQuartersInMagnitude) {
  int num_split = 0;
  for (int pattern = 0; pattern < kNumPatterns; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    const float value = f16_to_f32(bits);
    // False for NaN.
    ASSERT_EQ(can_split_f16(bits), std::fabs(value) <= 1.75f) << value;
    num_split += can_split_f16(bits) ? 1 : 0;
  }
  EXPECT_EQ(num_split, 2 * (0x3F00 + 1));
}

TEST(NestedFloat, UpperByteIsTheNearestE4m3AndTheJoinIsExact) {
  for (int pattern = 0; pattern < kNumPatterns; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    if (!can_split_f16(bits)) continue;
    const NestedFloat nested = split_f16(bits);
    ASSERT_EQ(nested.upper, f32_to_e4m3(f16_to_f32(bits) * 256.0f)) << pattern;
    ASSERT_NE(nested.upper & 0x7F, 0x7F) << pattern;
    ASSERT_EQ(join_f16(nested), bits) << pattern;
    ASSERT_TRUE(is_split_f16(nested)) << pattern;
  }
}

// The code that is NaN in e4m3 begins above 1.75: halfway from 448 to 480 is a tie that goes to the
// even 448, and the next f16 value does not.
TEST(NestedFloat, TheNanCodeIsOutOfReach) {
  EXPECT_EQ(split_f16(0x3F00), (NestedFloat{0x7E, 0x00}));  // 1.75
  EXPECT_EQ(split_f16(0xBEFF), (NestedFloat{0xFE, 0xFF}));  // the next one, rounded up to it
  const auto rounded = [](int bits) { return split_f16(static_cast<uint16_t>(bits)).upper; };
  for (int bits = 0; bits <= 0x3F40; ++bits) ASSERT_LE(rounded(bits), 0x7E) << bits;
  EXPECT_EQ(rounded(0x3F41), 0x7F);
  EXPECT_GT(f16_to_f32(0x3F41), 1.8125f);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(rounded(0x3F41))));
}

// is_split_f16() accepts exactly those of the 65,536 pairs of bytes that an f16 value gives.
TEST(NestedFloat, TellsPairsThatNoNumberGives) {
  int num_split = 0;
  for (int pattern = 0; pattern < kNumPatterns; ++pattern) {
    const NestedFloat nested = {static_cast<uint8_t>(pattern >> 8), static_cast<uint8_t>(pattern)};
    num_split += is_split_f16(nested) ? 1 : 0;
  }
  EXPECT_EQ(num_split, 2 * (0x3F00 + 1));
  EXPECT_FALSE(is_split_f16({0x7F, 0x00}));
  EXPECT_FALSE(is_split_f16({0xFF, 0xFF}));
  EXPECT_FALSE(is_split_f16({0x00, 0x80}));  // rounded up from below zero
  EXPECT_FALSE(is_split_f16({0x7E, 0x01}));  // the number above 1.75
  EXPECT_FALSE(is_split_f16({0x01, 0x00}));  // 0 is not rounded up
}

}  // namespace
}  // namespace halley
