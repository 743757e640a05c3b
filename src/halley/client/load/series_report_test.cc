#include "halley/client/load/series_report.h"

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::ElementsAre;
using testing::Not;

std::vector<LoadSecond> make_series() {
  LoadSecond busy{.requests = 4, .failed = 1, .running = 6, .tokens = 120};
  busy.precision_tokens = {{"full", 20}, {"low", 100}};
  busy.ttft = {.count = 3, .p50 = 0.125, .p90 = 0.25, .p99 = 0.5};
  busy.tpot = {.count = 110, .p50 = 0.01, .p90 = 0.04, .p99 = 0.05};
  return {busy, LoadSecond{.running = 6}};
}

constexpr Slo kSlo = {.ttft = 0.2, .tpot = 0.0333};

/// The words of each line.
std::vector<std::vector<std::string>> words_of(const std::string& text) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    lines.emplace_back(std::istream_iterator<std::string>(words),
                       std::istream_iterator<std::string>());
  }
  return lines;
}

TEST(SeriesReport, HasARowASecond) {
  const auto lines = words_of(format_load_series(make_series(), kSlo));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[1], ElementsAre("0", "4", "1", "120", "125.0", "250.0", "500.0", "10.0", "40.0",
                                    "50.0", "20", "100", "ttft", "tpot"));
  EXPECT_THAT(lines[2], ElementsAre("1", "0", "0", "0", "-", "-", "-", "-", "-", "-", "0", "0"));
}

TEST(SeriesReport, HasNoColumnsForWhatIsUnknown) {
  std::vector<LoadSecond> series = make_series();
  series[0].precision_tokens.clear();
  const std::string text = format_load_series(series, {});
  EXPECT_THAT(text, Not(testing::HasSubstr("violates")));
  EXPECT_EQ(words_of(text)[1].size(), 10U);
}

TEST(SeriesReport, ColumnsStandBelowTheirNames) {
  std::istringstream in(format_load_series(make_series(), kSlo));
  std::string head, row;
  std::getline(in, head);
  std::getline(in, row);
  for (const char* name : {"req/s", "p99", "full", "low"}) {
    const size_t end = head.find(name) + std::string(name).size();
    EXPECT_NE(row.at(end - 1), ' ') << name;
    EXPECT_EQ(row.at(end), ' ') << name;
  }
}

TEST(SeriesReport, JsonHasMillisecondsAndViolations) {
  const OrderedJson json = load_series_json(make_series(), kSlo);
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0].at("requests"), 4);
  EXPECT_EQ(json[0].at("failed"), 1);
  EXPECT_EQ(json[0].at("running"), 6);
  EXPECT_EQ(json[0].at("output_tokens"), 120);
  EXPECT_EQ(json[0].at("ttft_ms"),
            OrderedJson({{"count", 3}, {"p50", 125.0}, {"p90", 250.0}, {"p99", 500.0}}));
  EXPECT_EQ(json[0].at("output_tokens_by_precision"), OrderedJson({{"full", 20}, {"low", 100}}));
  EXPECT_EQ(json[0].at("violations"), OrderedJson::array({"ttft", "tpot"}));
  EXPECT_TRUE(json[1].at("tpot_ms").is_null());
  EXPECT_FALSE(json[1].contains("output_tokens_by_precision"));
  EXPECT_EQ(json[1].at("violations"), OrderedJson::array());
  EXPECT_EQ(load_series_json(make_series(), {})[0].at("violations"), OrderedJson::array());
}

}  // namespace
}  // namespace halley
