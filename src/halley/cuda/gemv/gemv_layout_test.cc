#include "halley/cuda/gemv/gemv_layout.h"

#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace halley::cuda {
namespace {

struct Case {
  GemvInputs inputs;
  int bits;
};
const std::vector<Case> kCases = {{GemvInputs::kNumbers, 8}, {GemvInputs::kNumbers, 3},
                                  {GemvInputs::kNumbers, 2}, {GemvInputs::kNumbers, 1},
                                  {GemvInputs::kS8, 2},      {GemvInputs::kS8, 1}};

TEST(GemvLayout, GivesEachBitOfAPieceOnePlace) {
  for (const Case& test : kCases) {
    std::set<std::tuple<int, int, int>> bits_of_codes;
    std::set<std::pair<int, int>> places;
    std::set<int> offsets;
    for (int lane = 0; lane < 32; ++lane) {
      for (int word = 0; word < gemv_lane_words(test.bits); ++word) {
        const int offset = gemv_word_offset(test.bits, word, lane);
        ASSERT_LE(offset + 4, gemv_piece_bytes(test.bits));
        offsets.insert(offset);
        for (int i = 0; i < 32 / gemv_slot_bits(test.bits, word); ++i) {
          const GemvSlot slot = gemv_slot(test.inputs, test.bits, lane, word, i);
          ASSERT_LT(slot.output, kGemvTileOutputs);
          ASSERT_LT(slot.input, kGemvPieceInputs);
          for (int bit = 0; bit < slot.count; ++bit) {
            bits_of_codes.insert({slot.output, slot.input, slot.low + bit});
            places.insert({offset, slot.shift + bit});
          }
        }
      }
    }
    const auto all = static_cast<size_t>(kGemvTileOutputs * kGemvPieceInputs * test.bits);
    EXPECT_EQ(bits_of_codes.size(), all) << test.bits;
    EXPECT_EQ(places.size(), all) << test.bits;
    EXPECT_EQ(offsets.size() * 4, static_cast<size_t>(gemv_piece_bytes(test.bits)));
  }
}

TEST(GemvLayout, GivesALaneTheInputsThatItHasOfX) {
  for (const Case& test : kCases) {
    const int part = test.inputs == GemvInputs::kS8 ? 16 : 8;
    for (int lane = 0; lane < 32; ++lane) {
      for (int word = 0; word < gemv_lane_words(test.bits); ++word) {
        for (int i = 0; i < 32 / gemv_slot_bits(test.bits, word); ++i) {
          const GemvSlot slot = gemv_slot(test.inputs, test.bits, lane, word, i);
          EXPECT_EQ(slot.output % 8, lane / 4);
          EXPECT_EQ(slot.input / part % 4, lane % 4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace halley::cuda
