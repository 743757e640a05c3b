#include "halley/cuda/nested_gemm/nested_layout.h"

#include <set>

#include <gtest/gtest.h>

namespace halley::cuda {
namespace {

TEST(NestedLayout, GivesEveryByteAPlaceOfItsOwn) {
  std::set<int> places;
  for (int n = 0; n < kTileOutputs; ++n) {
    for (int k = 0; k < kNestedInputs; ++k) places.insert(lower_offset(n, k));
  }
  EXPECT_EQ(places.size(), size_t{kNestedChunkBytes});
  EXPECT_EQ(*places.begin(), 0);
  EXPECT_EQ(*places.rbegin(), kNestedChunkBytes - 1);
}

/// Eight bytes of a thread: what the fragment tables of the PTX ISA say of "m64k16", A: registers 0
/// and 2 have row g, 1 and 3 row g + 8; 0 and 1 inputs 2 c and 2 c + 1, 2 and 3 those 8 further.
TEST(NestedLayout, GivesThreadsTheirFragments) {
  for (int warpgroup = 0; warpgroup < 2; ++warpgroup) {
    for (int thread = 0; thread < 128; ++thread) {
      const int warp = thread / 32, g = thread % 32 / 4, c = thread % 4;
      for (int step = 0; step < kNestedSteps; ++step) {
        const int begin = ((warpgroup * kNestedSteps + step) * 128 + thread) * 8;
        for (int element = 0; element < 8; ++element) {
          const int fragment = element / 2;
          const int output = warpgroup * 64 + warp * 16 + g + fragment % 2 * 8;
          const int input = step * 16 + 2 * c + element % 2 + fragment / 2 * 8;
          // Bytes 0 to 3 are of row g: registers 0 and 2, as join_four() takes them.
          const int byte = fragment % 2 * 4 + fragment / 2 * 2 + element % 2;
          EXPECT_EQ(lower_offset(output, input), begin + byte);
        }
      }
    }
  }
}

/// Lanes that read the same step of rows g = 0 .. 7: two of them read two halves of a bank's word.
TEST(NestedLayout, RowsOfTheUpperPlaneLieInAllBanks) {
  for (int step = 0; step < kNestedSteps; ++step) {
    std::set<int> banks;
    for (int g = 0; g < 8; ++g) {
      for (int c = 0; c < 4; ++c) {
        const int unit = step ^ g;  // swizzle by 128 bytes: bits 7 to 9 of the address
        banks.insert((g * 128 + unit * 16 + 2 * c) / 4 % 32);
      }
    }
    EXPECT_EQ(banks.size(), 16u);
  }
}

}  // namespace
}  // namespace halley::cuda
