#include "halley/cuda/tuning/tuning_table.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kHead =
    R"({"format": "halley-tuned-plans", "version": 2, "device": "a GPU", "sms": 132,)";

std::string file_with(const std::string& plans) { return str(kHead, R"("plans": [)", plans, "]}"); }

/// A plan in which `member` has another value, or is missing where that is "".
std::string plan_with(const std::string& name, const std::string& value) {
  const std::vector<std::pair<std::string, std::string>> usual = {{"kernel", R"("u4_s8")"},
                                                                  {"N", "6144"},
                                                                  {"K", "4096"},
                                                                  {"group_size", "128"},
                                                                  {"rows", "16"},
                                                                  {"plan", R"({"tokens": 16})"},
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
    TuningTable::parse(text, "tuned.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const TunedGemm kGemm = {.kernel = "u4_s8", .N = 6144, .K = 4096, .group_size = 128};

TunedPlan plan_of(const TunedGemm& gemm, int64_t rows, int64_t tokens) {
  return {.gemm = gemm, .rows = rows, .settings = {{"tokens", tokens}}, .microseconds = 5.5};
}

TuningTable some_table() {
  TunedGemm other = kGemm;
  other.kernel = "w4ax";
  other.group_size = 0;
  return {"a GPU", 132, {plan_of(other, 64, 1), plan_of(kGemm, 64, 2), plan_of(kGemm, 4, 3)}};
}

TEST(TuningTable, IsReadAsItWasWritten) {
  const TuningTable table = some_table();
  const TuningTable read = TuningTable::parse(table.to_json(), "tuned.json");
  EXPECT_EQ(read.device(), "a GPU");
  EXPECT_EQ(read.num_sms(), 132);
  ASSERT_EQ(read.plans().size(), 3U);
  EXPECT_EQ(read.plans()[0].gemm, kGemm);
  EXPECT_EQ(read.plans()[0].rows, 4);
  EXPECT_EQ(read.plans()[1].settings, (PlanSettings{{"tokens", 2}}));
  EXPECT_EQ(read.plans()[2].gemm.group_size, 0);
  EXPECT_EQ(read.plans()[2].microseconds, 5.5);
  EXPECT_EQ(read.to_json(), table.to_json());
}

TEST(TuningTable, FindsTheFewestRowsThatAreNotFewer) {
  const TuningTable table = some_table();
  for (const auto& [M, rows] : {std::pair{1, 4}, {4, 4}, {33, 64}, {64, 64}}) {
    ASSERT_NE(table.find(kGemm, M), nullptr) << M;
    EXPECT_EQ(table.find(kGemm, M)->rows, rows) << M;
    EXPECT_EQ(table.find(kGemm, M)->gemm, kGemm);
  }
  for (const int64_t far : {5, 32, 65}) EXPECT_EQ(table.find(kGemm, far), nullptr) << far;
}

TEST(TuningTable, FindsNothingForOtherGemms) {
  const TuningTable table = some_table();
  TunedGemm other = kGemm;
  other.N += 1;
  EXPECT_EQ(table.find(other, 1), nullptr);
  EXPECT_FALSE(table.has(other));
  other = kGemm;
  other.K = 8192;
  EXPECT_EQ(table.find(other, 1), nullptr);
  other = kGemm;
  other.group_size = 64;
  EXPECT_EQ(table.find(other, 1), nullptr);
  other = kGemm;
  other.kernel = "u4_f16";
  EXPECT_EQ(table.find(other, 1), nullptr);
  EXPECT_EQ(TuningTable().find(kGemm, 1), nullptr);
  EXPECT_TRUE(table.has(kGemm));
}

TEST(TuningTable, NewPlansReplaceOldOnesOfTheSameRows) {
  TuningTable table = some_table();
  table.merge({plan_of(kGemm, 64, 20), plan_of(kGemm, 16, 30)});
  std::vector<int64_t> tokens;
  for (const TunedPlan& plan : table.plans()) {
    if (plan.gemm == kGemm) tokens.push_back(setting_of(plan.settings, "tokens", 0));
  }
  EXPECT_THAT(tokens, ElementsAre(3, 30, 20));
  EXPECT_EQ(table.plans().size(), 4U);
}

TEST(TuningTable, RejectsTwoOfTheSameGemmAndRows) {
  const std::string text = file_with(plan_with("", "") + "," + plan_with("us", "8"));
  EXPECT_THAT(error_of(text), HasSubstr("two of u4_s8 6144 x 4096, 16 rows"));
}

TEST(TuningTable, TakesThePlanOfTheTests) { EXPECT_EQ(error_of(file_with(plan_with("", ""))), ""); }

TEST(TuningTable, RejectsWrongMembersByName) {
  struct Case {
    const char* member;
    const char* value;  // "": missing
    const char* error;
  };
  for (const Case& c :
       {Case{"kernel", "3", "kernel: expected a string"},
        Case{"kernel", "", R"(expected a member "kernel")"},
        Case{"N", "0", "N: expected a whole number from 1"}, Case{"N", "1e400", "not valid JSON"},
        Case{"N", "6144.5", "N: expected a whole number"},
        Case{"K", "-1", "K: expected a whole number"},
        Case{"K", "18446744073709551615", "K: expected a whole number"},
        Case{"K", "", R"(expected a member "K")"},
        Case{"group_size", "0", "group_size: expected a whole number from 1"},
        Case{"rows", "[]", "rows: expected a whole number"},
        Case{"plan", "[]", "plan: expected an object"},
        Case{"plan", R"({"tokens": "16"})", "tokens: expected a whole number"},
        Case{"plan", R"({"tokens": -1})", "tokens: expected a whole number from 0"},
        Case{"plan", R"({"tokens": 2147483648})", "tokens: expected a whole number"},
        Case{"us", "0", "us: expected a time above 0"}, Case{"us", "\"7\"", "us: expected a time"},
        Case{"colour", "1", R"(unknown member "colour")"}}) {
    const std::string error = error_of(file_with(plan_with(c.member, c.value)));
    EXPECT_THAT(error, HasSubstr(c.error)) << c.member << " " << c.value;
    EXPECT_THAT(error, HasSubstr("tuned.json")) << c.member << " " << c.value;
  }
}

TEST(TuningTable, RejectsOtherFiles) {
  EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(error_of("{}"), HasSubstr(R"(expected a member "format")"));
  EXPECT_THAT(error_of(R"({"format": "gguf"})"), HasSubstr("format: expected"));
  // That of 0.1.0, whose plans had other names.
  EXPECT_THAT(error_of(R"({"format": "halley-tuned-plans", "version": 1, "device": "a GPU",)"
                       R"("multiprocessors": 132, "plans": []})"),
              HasSubstr("version: expected a whole number from 2 to 2"));
  EXPECT_THAT(error_of(str(kHead, R"("plans": {}})")), HasSubstr("plans: expected an array"));
  EXPECT_THAT(error_of(file_with("3")), HasSubstr("plans[0]: expected an object"));
}

}  // namespace
}  // namespace halley::cuda
