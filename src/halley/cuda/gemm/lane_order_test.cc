#include "halley/cuda/gemm/lane_order.h"

#include <set>

#include <gtest/gtest.h>

namespace halley::cuda {
namespace {

TEST(LaneOrder, GivesEveryInputAPlaceOfItsOwn) {
  std::set<int> places;
  for (int input = 0; input < kLaneInputs; ++input) {
    places.insert(lane_place(input));
    EXPECT_EQ(lane_input(lane_place(input)), input);
  }
  EXPECT_EQ(places.size(), size_t{kLaneInputs});
  EXPECT_EQ(*places.begin(), 0);
  EXPECT_EQ(*places.rbegin(), kLaneInputs - 1);
}

}  // namespace
}  // namespace halley::cuda
