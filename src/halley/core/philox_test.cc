#include "halley/core/philox.h"

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::ElementsAre;

// The known answers that are published with Random123 (kat_vectors, philox4x32 10).
TEST(Philox, GivesThePublishedNumbers) {
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_THAT(philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8));
  EXPECT_THAT(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD));
  EXPECT_THAT(
      philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
      ElementsAre(0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1));
}

TEST(Philox, UsesAllBitsOfSeedAndIndex) {
  EXPECT_EQ(random_bits(0, 0), 0xE169C58D6627E8D5);
  EXPECT_NE(random_bits(uint64_t{1} << 63, 0), random_bits(0, 0));
  EXPECT_NE(random_bits(0, uint64_t{1} << 63), random_bits(0, 0));
}

TEST(Philox, IsUniformInZeroToOne) {
  double sum = 0;
  for (uint64_t index = 0; index < 10'000; ++index) {
    const double value = random_uniform(7, index);
    ASSERT_TRUE(value >= 0 && value < 1) << value;
    sum += value;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.01);  // 3.5 standard deviations
}

}  // namespace
}  // namespace halley
