#include "halley/cuda/w4ax_gemm/w4ax_layout.h"

#include <set>
#include <utility>

#include <gtest/gtest.h>

namespace halley::cuda {
namespace {

TEST(W4axLayout, HasEveryCodeOnce) {
  std::set<std::pair<int, int>> codes;
  for (int byte = 0; byte < kW4axChunkBytes; ++byte) {
    const W4axBytePlace place = w4ax_byte_place(byte);
    for (const int output : {place.output, place.output + 8}) {
      EXPECT_LT(output, kTileOutputs);
      EXPECT_LT(place.input, kW4axInputs);
      codes.insert({output, place.input});
    }
  }
  EXPECT_EQ(codes.size(), size_t{kTileOutputs * kW4axInputs});
}

/// What the fragment tables of the PTX ISA say of s8, "m64k32", A: register r has row g where r is
/// even and g + 8 where it is odd, and inputs 4 c .. 4 c + 3, those of registers 2 and 3 16
/// further.
TEST(W4axLayout, GivesThreadsTheirFragments) {
  for (int row = 0; row < kTileOutputs / 16; ++row) {
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, c = lane % 4;
      for (int step = 0; step < 4; ++step) {
        for (int i = 0; i < 8; ++i) {
          // Word i / 4 of the step: a mask takes the even register from it, a shift the odd one.
          const int byte =
              row * kW4axRowBytes + step / 2 * kW4axHalfBytes + lane * 16 + step % 2 * 8 + i;
          const W4axBytePlace place = w4ax_byte_place(byte);
          EXPECT_EQ(place.output, 16 * row + g);
          EXPECT_EQ(place.input, 32 * step + i / 4 * 16 + 4 * c + i % 4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
