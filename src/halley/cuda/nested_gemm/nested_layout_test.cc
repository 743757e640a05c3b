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

/// Four words of a thread: what the fragment tables of the PTX ISA say of "m64k16", A: registers 0
/// and 2 have row g, 1 and 3 row g + 8; 0 and 1 inputs 2 c and 2 c + 1, 2 and 3 those 8 further. A
/// word has registers 0 and 2, or 1 and 3, as join_four() takes them.
TEST(NestedLayout, GivesThreadsTheirFragments) {
  for (int warpgroup = 0; warpgroup < 2; ++warpgroup) {
    for (int thread = 0; thread < 128; ++thread) {
      const int warp = thread / 32, g = thread % 32 / 4, c = thread % 4;
      for (int step = 0; step < kNestedSteps; ++step) {
        for (int element = 0; element < 8; ++element) {
          const int fragment = element / 2;
          const int output = warpgroup * 64 + warp * 16 + g + fragment % 2 * 8;
          const int input = step * 16 + 2 * c + element % 2 + fragment / 2 * 8;
          const int byte = step % 4 * 4 + fragment / 2 * 2 + element % 2;
          const int vector = (warpgroup * 2 + step / 4) * 2 + fragment % 2;
          EXPECT_EQ(lower_offset(output, input), (vector * 128 + thread) * 16 + byte);
          EXPECT_EQ(lane_place(input), (2 * c + step / 4) * 16 + byte);
        }
      }
    }
  }
}

/// Eight lanes read 16 bytes each at a time: in all banks, of both planes.
TEST(NestedLayout, RowsOfTheUpperPlaneLieInAllBanks) {
  for (int half = 0; half < 2; ++half) {
    for (int first_row = 0; first_row < 8; first_row += 2) {
      std::set<int> banks;
      for (int lane = 0; lane < 8; ++lane) {
        const int g = first_row + lane / 4, c = lane % 4;
        const int unit = (2 * c + half) ^ g;  // swizzle by 128 bytes: bits 7 to 9 of the address
        banks.insert((g * 128 + unit * 16) / 16 % 8);
      }
      EXPECT_EQ(banks.size(), 8u);
    }
  }
}

}  // namespace
}  // namespace halley::cuda
