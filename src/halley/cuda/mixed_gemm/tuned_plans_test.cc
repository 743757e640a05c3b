#include "halley/cuda/mixed_gemm/tuned_plans.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cuda {
namespace {

using testing::HasSubstr;

constexpr const char* kHead =
    R"({"format": "halley-tuned-plans", "version": 1, "device": "a GPU", "multiprocessors": 132,)";

std::string file_with(const std::string& plans) { return str(kHead, R"("plans": [)", plans, "]}"); }

/// A plan in which `member` stands for what is usually there.
std::string plan_with(const std::string& name, const std::string& value) {
  const std::vector<std::pair<std::string, std::string>> usual = {
      {"kind", R"("u4_s8")"}, {"N", "6144"},          {"K", "4096"},
      {"group_size", "128"},  {"rows", "16"},         {"tokens", "16"},
      {"outputs", "128"},     {"blocks_a_tile", "2"}, {"blocks_a_multiprocessor", "1"},
      {"us", "7.25"}};
  std::string text;
  bool is_there = false;
  for (const auto& [member, number] : usual) {
    const bool is_it = member == name;
    is_there |= is_it;
    if (is_it && value.empty()) continue;
    text += str(text.empty() ? "" : ", ", '"', member, "\": ", is_it ? value : number);
  }
  if (!is_there && !name.empty()) text += str(", \"", name, "\": ", value);
  return str("{", text, "}");
}

std::string error_of(const std::string& text) {
  try {
    TunedMixedPlans::parse(text, "tuned.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::vector<TunedMixedPlan> some_plans() {
  TunedMixedPlan plan = {.kind = MixedKind::kU4S8, .N = 6144, .K = 4096, .rows = 4};
  plan.is_narrow = true;
  plan.microseconds = 5.5;
  std::vector<TunedMixedPlan> plans = {plan};
  plan.is_narrow = false;
  plan.rows = 64;
  plan.tiling = {.tile_index = 2, .num_ranks = 2, .blocks_per_multiprocessor = 2};
  plans.push_back(plan);
  plan.kind = MixedKind::kU4F16;
  plan.tiling = {.tile_index = 4, .num_ranks = 3};
  plans.push_back(plan);
  plan.rows = 128;
  plan.tiling = {.tile_index = 4, .shares_last_tiles = true};
  plans.push_back(plan);
  return plans;
}

TEST(TunedMixedPlans, AreReadAsTheyWereWritten) {
  const TunedMixedPlans plans("a GPU", 132, some_plans());
  const TunedMixedPlans read = TunedMixedPlans::parse(plans.to_json(), "tuned.json");
  EXPECT_EQ(read.device(), "a GPU");
  EXPECT_EQ(read.num_sms(), 132);
  ASSERT_EQ(read.plans().size(), 4U);
  EXPECT_TRUE(read.plans()[0].is_narrow);
  EXPECT_EQ(read.plans()[1].tiling.tile_index, 2);
  EXPECT_EQ(read.plans()[1].tiling.blocks_per_multiprocessor, 2);
  EXPECT_EQ(read.plans()[2].kind, MixedKind::kU4F16);
  EXPECT_EQ(read.plans()[2].tiling.num_ranks, 3);
  EXPECT_FALSE(read.plans()[2].tiling.shares_last_tiles);
  EXPECT_EQ(read.plans()[3].tiling.num_ranks, 1);
  EXPECT_TRUE(read.plans()[3].tiling.shares_last_tiles);
  EXPECT_EQ(read.to_json(), plans.to_json());
}

TEST(TunedMixedPlans, FindsTheFewestRowsThatAreNotFewer) {
  const TunedMixedPlans plans("a GPU", 132, some_plans());
  MixedShape shape = {.kind = MixedKind::kU4S8, .M = 1, .N = 6144, .K = 4096};
  for (const auto& [M, rows] : {std::pair{1, 4}, {4, 4}, {33, 64}, {64, 64}}) {
    shape.M = M;
    ASSERT_NE(plans.find(shape), nullptr) << M;
    EXPECT_EQ(plans.find(shape)->rows, rows) << M;
    EXPECT_EQ(plans.find(shape)->kind, MixedKind::kU4S8);
  }
  for (const int64_t far : {5, 32, 65}) {
    shape.M = far;
    EXPECT_EQ(plans.find(shape), nullptr) << far;
  }
}

TEST(TunedMixedPlans, FindsNothingForOtherLayers) {
  const TunedMixedPlans plans("a GPU", 132, some_plans());
  const MixedShape shape = {.kind = MixedKind::kU4S8, .M = 1, .N = 6144, .K = 4096};
  for (const auto change : {0, 1, 2, 3}) {
    MixedShape other = shape;
    if (change == 0) other.N += 1;
    if (change == 1) other.K = 8192;
    if (change == 2) other.group_size = 64;
    if (change == 3) other.kind = MixedKind::kU4Bf16;
    EXPECT_EQ(plans.find(other), nullptr) << change;
  }
  EXPECT_EQ(TunedMixedPlans().find(shape), nullptr);
}

TEST(TunedMixedPlans, RejectsTwoOfTheSameLayerAndRows) {
  const std::string text = file_with(plan_with("", "") + "," + plan_with("us", "8"));
  EXPECT_THAT(error_of(text), HasSubstr("two of u4_s8 6144 x 4096, 16 rows"));
}

TEST(TunedMixedPlans, TakesThePlanOfTheTests) {
  EXPECT_EQ(error_of(file_with(plan_with("", ""))), "");
}

TEST(TunedMixedPlans, RejectsWrongMembersByName) {
  struct Case {
    const char* member;
    const char* value;  // "": missing
    const char* error;
  };
  for (const Case& c : {Case{"kind", R"("u3_s8")", "kind: expected u4_s8"},
                        Case{"kind", "3", "kind: expected a string"},
                        Case{"kind", "", R"(expected a member "kind")"},
                        Case{"N", "0", "N: expected a whole number from 1"},
                        Case{"N", "1e400", "not valid JSON"},
                        Case{"N", "6144.5", "N: expected a whole number"},
                        Case{"K", "-1", "K: expected a whole number"},
                        Case{"K", "18446744073709551615", "K: expected a whole number"},
                        Case{"K", "", R"(expected a member "K")"},
                        Case{"group_size", "100", "group_size: expected 32, 64 or 128"},
                        Case{"rows", "[]", "rows: expected a whole number"},
                        Case{"tokens", "40", "no tile of 40 x 128"},
                        Case{"blocks_a_tile", "9", "blocks_a_tile: expected"},
                        Case{"blocks_a_multiprocessor", "3", "blocks_a_multiprocessor: expected"},
                        Case{"shares_last_tiles", "1", "shares_last_tiles: expected true or false"},
                        Case{"us", "0", "us: expected a time above 0"},
                        Case{"us", "\"7\"", "us: expected a time"},
                        Case{"is_narrow", "1", "is_narrow: expected true or false"},
                        Case{"is_narrow", "true", "unknown member"},
                        Case{"colour", "1", R"(unknown member "colour")"}}) {
    const std::string error = error_of(file_with(plan_with(c.member, c.value)));
    EXPECT_THAT(error, HasSubstr(c.error)) << c.member << " " << c.value;
    EXPECT_THAT(error, HasSubstr("tuned.json")) << c.member << " " << c.value;
  }
}

TEST(TunedMixedPlans, RejectsTilingsThatCannotBe) {
  // More blocks than the layer has chunks of inputs.
  EXPECT_THAT(error_of(file_with(plan_with("K", "128"))), HasSubstr("plans[0]: expected a tiling"));
  // Clusters and givers.
  EXPECT_THAT(error_of(file_with(plan_with("shares_last_tiles", "true"))),
              HasSubstr("plans[0]: expected a tiling"));
}

TEST(TunedMixedPlans, RejectsOtherFiles) {
  EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr(R"(expected a member "format")"));
  EXPECT_THAT(error_of(R"({"format": "gguf"})"), HasSubstr("format: expected"));
  EXPECT_THAT(error_of(str(kHead, R"("plans": {}})")), HasSubstr("plans: expected an array"));
  EXPECT_THAT(error_of(file_with("7")), HasSubstr("plans[0]: expected an object"));
  EXPECT_THAT(error_of(str(kHead, R"("plans": [], "more": 1})")), HasSubstr("unknown member"));
  EXPECT_THAT(error_of(std::string(1000, '[')), HasSubstr("nested deeper than 8 levels"));
}

TEST(TunedMixedPlans, BuiltInOnesAreOfAnH200) {
  const TunedMixedPlans& plans = built_in_tuned_plans();
  EXPECT_TRUE(plans.is_of({}));
  EXPECT_FALSE(plans.is_of({.num_sms = 114}));
  for (const TunedMixedPlan& plan : plans.plans()) {
    const MixedShape shape = {
        .kind = plan.kind, .M = plan.rows, .N = plan.N, .K = plan.K, .group_size = plan.group_size};
    const MixedPlan chosen = plan_mixed_gemm(shape, {});
    EXPECT_EQ(chosen.is_narrow, plan.is_narrow) << chosen;
    if (plan.is_narrow) continue;
    EXPECT_EQ(chosen.tiling.tile_index, plan.tiling.tile_index) << chosen;
    EXPECT_EQ(chosen.tiling.num_ranks, plan.tiling.num_ranks) << chosen;
  }
}

TEST(TunedMixedPlans, ThoseThatAreSetAreTaken) {
  const MixedShape shape = {.kind = MixedKind::kU4S8, .M = 64, .N = 6144, .K = 4096};
  const MixedDevice device, other = {.num_sms = 114};
  const std::string elsewhere = str(plan_mixed_gemm(shape, other));
  TunedMixedPlan plan = some_plans().at(1);
  plan.tiling = {.tile_index = 0, .num_ranks = 2, .blocks_per_multiprocessor = 2};
  set_tuned_mixed_plans({"a GPU", 132, {plan}});
  EXPECT_EQ(plan_mixed_gemm(shape, device).tiling.tile_index, 0);
  EXPECT_EQ(str(plan_mixed_gemm(shape, other)), elsewhere);
  set_tuned_mixed_plans(built_in_tuned_plans());
}

}  // namespace
}  // namespace halley::cuda
