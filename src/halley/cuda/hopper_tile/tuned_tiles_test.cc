#include "halley/cuda/hopper_tile/tuned_tiles.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cuda {
namespace {

using testing::HasSubstr;

constexpr TimedTile kTiles[] = {{{16}}, {{64, 2}}};
constexpr TileFamily kFamily = {
    .name = "nested", .tiles = kTiles, .stage_inputs = 64, .weight_bits = 16, .stage = nullptr};

std::string plan_with(const std::string& tokens, const std::string& rows) {
  return str(R"({"family": "nested", "N": 6144, "K": 4096, "rows": )", rows, R"(, "tokens": )",
             tokens, R"(, "blocks_a_multiprocessor": 2, "shared_rounds": 1, "parts": 3,)",
             R"( "split": 1, "us": 7.5})");
}

std::string file_with(const std::string& plans) {
  return str(R"({"format": "halley-tuned-tiles", "version": 1, "device": "a GPU",)",
             R"( "multiprocessors": 132, "plans": [)", plans, "]}");
}

std::string error_of(const std::string& text) {
  try {
    TunedTiles::parse(text, "tuned.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(TunedTiles, FindsTheFewestRowsThatAreNotFewer) {
  const TunedTiles tiles =
      TunedTiles::parse(file_with(plan_with("64", "128") + "," + plan_with("64", "64")), "a file");
  EXPECT_EQ(tiles.num_sms(), 132);
  ASSERT_EQ(tiles.plans().size(), 2U);
  const auto found = tiles.find(kFamily, {.M = 50, .N = 6144, .K = 4096});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tile_index, 1);
  EXPECT_EQ(found->blocks, 2);
  EXPECT_EQ(found->shared_rounds, 1);
  EXPECT_EQ(found->parts, 3);
  EXPECT_TRUE(tiles.find(kFamily, {.M = 128, .N = 6144, .K = 4096}));
  EXPECT_FALSE(tiles.find(kFamily, {.M = 129, .N = 6144, .K = 4096}));
  EXPECT_FALSE(tiles.find(kFamily, {.M = 32, .N = 6144, .K = 4096}));
  EXPECT_FALSE(tiles.find(kFamily, {.M = 64, .N = 6144, .K = 8192}));
  TileFamily other = kFamily;
  other.name = "other";
  EXPECT_FALSE(tiles.find(other, {.M = 64, .N = 6144, .K = 4096}));
}

TEST(TunedTiles, AreReadAsTheyWereWritten) {
  const TunedTile tile = {.family = "nested",
                          .N = 6144,
                          .K = 4096,
                          .rows = 64,
                          .tokens = 64,
                          .deal = {.blocks = 2, .shared_rounds = 1, .parts = 3},
                          .microseconds = 7.25};
  const TunedTiles read = TunedTiles::parse(file_with(to_json(tile)), "a file");
  ASSERT_EQ(read.plans().size(), 1U);
  EXPECT_EQ(to_json(read.plans()[0]), to_json(tile));
}

/// Two blocks of a tile that is compiled for one, and tiles that are not compiled.
TEST(TunedTiles, LeavesToTheRuleWhatIsNotCompiled) {
  for (const char* tokens : {"16", "128"}) {
    const TunedTiles tiles = TunedTiles::parse(file_with(plan_with(tokens, "64")), "a file");
    EXPECT_FALSE(tiles.find(kFamily, {.M = 64, .N = 6144, .K = 4096})) << tokens;
  }
}

TEST(TunedTiles, SaysWhatIsWrong) {
  EXPECT_THAT(error_of("{}"), HasSubstr("tuned.json: expected an object with a member \"format\""));
  EXPECT_THAT(error_of(R"({"format": "other"})"), HasSubstr("format: expected"));
  EXPECT_THAT(error_of(file_with("3")), HasSubstr("tuned.json: plans[0]: expected an object"));
  EXPECT_THAT(error_of(file_with(plan_with("64", "0"))),
              HasSubstr("plans[0]: rows: expected a whole number from 1 to 16777216"));
  EXPECT_THAT(error_of(file_with(plan_with("\"64\"", "8"))), HasSubstr("plans[0]: tokens"));
}

TEST(TunedTiles, BuiltInOnesAreThoseOfTheH200) { EXPECT_EQ(built_in_tuned_tiles().num_sms(), 132); }

}  // namespace
}  // namespace halley::cuda
