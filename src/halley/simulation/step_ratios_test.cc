#include "halley/simulation/step_ratios.h"

#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/json/json.h"

namespace halley {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kRounding = 1e-12;

TEST(StepRatio, IsLinearInTheLogarithmOfTheRows) {
  const StepRatio ratio({{1, 1.0}, {16, 3.0}, {64, 2.0}});
  EXPECT_NEAR(ratio.at(1), 1.0, kRounding);
  EXPECT_NEAR(ratio.at(4), 2.0, kRounding);
  EXPECT_NEAR(ratio.at(16), 3.0, kRounding);
  EXPECT_NEAR(ratio.at(32), 2.5, kRounding);
}

TEST(StepRatio, IsConstantBeyondItsPoints) {
  const StepRatio ratio({{8, 1.5}, {64, 2.0}});
  EXPECT_EQ(ratio.at(1), 1.5);
  EXPECT_EQ(ratio.at(8192), 2.0);
  EXPECT_EQ(StepRatio({{8, 1.5}}).at(100), 1.5);
}

RatioTable parse(const std::string& text) { return RatioTable::parse(text, "ratios.json"); }

TEST(RatioTable, ReadsEntriesInAnyOrder) {
  const RatioTable table = parse(R"({"ratios": [
    {"precision": "a", "rows": 64, "ratio": 2, "source": "measured today"},
    {"precision": "b", "rows": 1, "ratio": 7.5},
    {"rows": 1, "ratio": 1, "precision": "a"}]})");
  EXPECT_NEAR(table.of("a").at(8), 1.5, kRounding);
  EXPECT_EQ(table.of("b").at(8), 7.5);
}

TEST(RatioTable, SaysWhichPrecisionsThereAre) {
  const RatioTable table = parse(R"({"ratios": [{"precision": "a", "rows": 1, "ratio": 1}]})");
  EXPECT_THAT([&] { table.of("w8a8"); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("measured step times of w8a8"),
                                              HasSubstr("those of a in ratios.json"))));
  EXPECT_THAT([] { RatioTable::built_in().of("w8a8"); },
              ThrowsMessage<InputError>(HasSubstr("f16, fp8, nested_full, nested_low")));
}

TEST(RatioTable, RejectsWhatIsNoTable) {
  for (const char* text : {"[]", "{}", R"({"ratios": []})", R"({"ratios": {}})",
                           R"({"ratios": [{"precision": "a", "rows": 1, "ratio": 1}], "x": 1})"}) {
    EXPECT_THAT([&] { parse(text); },
                ThrowsMessage<InputError>(HasSubstr("ratios.json: expected an object")))
        << text;
  }
  EXPECT_THROW(parse("{"), InputError);
}

TEST(RatioTable, NamesTheEntryThatIsWrong) {
  const std::map<std::string, std::string> cases = {
      {R"({"precision": "a", "rows": 1})", "ratios[1]: expected the members precision, rows"},
      {R"({"precision": "a", "rows": 1, "ratio": 1, "x": 2})", "got \"x\""},
      {R"(3)", "ratios[1]: expected an object"},
      {R"({"precision": 1, "rows": 1, "ratio": 1})", "ratios[1].precision: expected a text"},
      {R"({"precision": "", "rows": 1, "ratio": 1})", "ratios[1].precision: expected a text"},
      {R"({"precision": "a", "rows": 0, "ratio": 1})", "ratios[1].rows: expected a number"},
      {R"({"precision": "a", "rows": 1.5, "ratio": 1})", "ratios[1].rows: expected a number"},
      {R"({"precision": "a", "rows": 2000000, "ratio": 1})", "ratios[1].rows: expected"},
      {R"({"precision": "a", "rows": 1, "ratio": 0})", "ratios[1].ratio: expected a number"},
      {R"({"precision": "a", "rows": 1, "ratio": 1001})", "ratios[1].ratio: expected a number"},
      {R"({"precision": "a", "rows": 1, "ratio": "1"})", "ratios[1].ratio: expected a number"},
      {R"({"precision": "z", "rows": 1, "ratio": 2})", "ratios[1]: expected one entry for 1 rows"}};
  for (const auto& [entry, message] : cases) {
    const std::string text =
        R"({"ratios": [{"precision": "z", "rows": 1, "ratio": 1}, )" + entry + "]}";
    EXPECT_THAT([&] { parse(text); }, ThrowsMessage<InputError>(HasSubstr(message))) << entry;
  }
}

TEST(RatioTable, RejectsTooManyEntries) {
  std::string text = R"({"ratios": [)";
  for (int i = 1; i <= 10'001; ++i) {
    text += R"({"precision": "a", "ratio": 1, "rows": )" + std::to_string(i) + "},";
  }
  text.back() = ']';
  EXPECT_THROW(parse(text + "}"), InputError);
}

// The measured ratio that a row of the table names, from its file.
double ratio_of(const MeasuredRatio& row) {
  const std::string path = std::string(HALLEY_SOURCE_DIR "/bench/results/") + row.file;
  const Json result = parse_json(read_text_file(path, 1 << 20), path).at("result");
  const auto number = [&](const Json& from, const char* name) {
    return from.at(name).get<double>();
  };
  if (result.contains("device_times")) {
    const Json& times = result.at("device_times");
    return row.is_prefill ? number(times, "prefill_steps_s") / number(result, "prefill_floor_s")
                          : number(times, "decode_step_s") / number(times, "decode_step_floor_s");
  }
  return row.is_prefill
             ? number(result, "time_to_first_token_s") / number(result, "first_token_floor_s")
             : number(result, "median_time_per_output_token_s") /
                   number(result, "decode_step_floor_s");
}

TEST(MeasuredRatios, AreThoseOfTheResultFiles) {
  constexpr double kLastDigit = 5.1e-5;
  std::set<std::string> precisions;
  for (const MeasuredRatio& row : measured_ratios()) {
    EXPECT_NEAR(row.ratio, ratio_of(row), kLastDigit)
        << row.file << ". Run tools/make_step_ratios.py.";
    EXPECT_THAT(row.file, HasSubstr(row.precision));
    precisions.insert(row.precision);
  }
  for (const std::string& precision : precisions) {
    EXPECT_GT(RatioTable::built_in().of(precision).at(1), 1) << precision;
  }
}

}  // namespace
}  // namespace halley
