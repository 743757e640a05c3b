#include "halley/client/load/load_series.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::IsEmpty;

LoadOutcome outcome(double start, double ttft, const std::vector<double>& itls) {
  LoadOutcome outcome;
  outcome.start = start;
  outcome.time_to_first_token = ttft;
  outcome.latency = ttft;
  for (const double interval : itls) outcome.latency += interval;
  outcome.inter_token_latencies = itls;
  return outcome;
}

template <typename Member>
std::vector<int64_t> all(const std::vector<LoadSecond>& series, Member member) {
  std::vector<int64_t> values;
  for (const LoadSecond& second : series) values.push_back(second.*member);
  return values;
}

std::vector<int64_t> counts(const std::vector<LoadSecond>& series,
                            SecondLatency LoadSecond::*latency) {
  std::vector<int64_t> values;
  for (const LoadSecond& second : series) values.push_back((second.*latency).count);
  return values;
}

TEST(LoadSeries, CountsRequestsAndTokensWhereTheyHappen) {
  // Tokens at 0.5, 0.75, 1.25 and at 1.5, 2.5.
  const auto series =
      make_load_series({outcome(0.25, 0.25, {0.25, 0.5}), outcome(1.25, 0.25, {1})});
  EXPECT_THAT(all(series, &LoadSecond::requests), ElementsAre(1, 1, 0));
  EXPECT_THAT(all(series, &LoadSecond::tokens), ElementsAre(2, 2, 1));
  EXPECT_THAT(all(series, &LoadSecond::running), ElementsAre(1, 2, 1));
  EXPECT_THAT(counts(series, &LoadSecond::ttft), ElementsAre(1, 1, 0));
  EXPECT_THAT(counts(series, &LoadSecond::tpot), ElementsAre(1, 1, 1));
  EXPECT_EQ(series[0].tpot.p50, 0.25);
  EXPECT_EQ(series[1].tpot.p99, 0.5);
  EXPECT_EQ(series[2].tpot.p90, 1);
}

TEST(LoadSeries, HasExactPercentiles) {
  std::vector<LoadOutcome> outcomes;
  for (int i = 1; i <= 5; ++i) outcomes.push_back(outcome(0, i / 8.0, {}));
  const SecondLatency ttft = make_load_series(outcomes).at(0).ttft;
  EXPECT_EQ(ttft.count, 5);
  EXPECT_EQ(ttft.p50, 0.375);
  EXPECT_THAT(ttft.p90, DoubleEq(0.575));  // 0.6 of the way from the fourth to the fifth
  EXPECT_THAT(ttft.p99, DoubleEq(0.62));
}

TEST(LoadSeries, AStallCountsInEverySecondThatItCovers) {
  // The first token comes at 3.5: the wait covers 1 and 2. The second comes at 7: the interval
  // covers 4, 5 and 6.
  const auto series = make_load_series({outcome(0.5, 3, {3.5})});
  EXPECT_THAT(counts(series, &LoadSecond::ttft), ElementsAre(0, 1, 1, 1, 0, 0, 0, 0));
  EXPECT_THAT(counts(series, &LoadSecond::tpot), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_EQ(series[1].ttft.p90, 3);
  EXPECT_EQ(series[4].tpot.p90, 3.5);
  EXPECT_THAT(all(series, &LoadSecond::tokens), ElementsAre(0, 0, 0, 1, 0, 0, 0, 1));
}

TEST(LoadSeries, FailuresCountAsRequestsAlone) {
  LoadOutcome failed = outcome(1.5, 0.25, {5});
  failed.error = "HTTP status 503";
  const auto series = make_load_series({outcome(0, 0.5, {}), failed});
  EXPECT_THAT(all(series, &LoadSecond::requests), ElementsAre(1, 1));
  EXPECT_THAT(all(series, &LoadSecond::failed), ElementsAre(0, 1));
  EXPECT_THAT(all(series, &LoadSecond::tokens), ElementsAre(1, 0));
  EXPECT_THAT(all(series, &LoadSecond::running), ElementsAre(1, 0));
  EXPECT_EQ(series[1].ttft.count, 0);
}

TEST(LoadSeries, DividesIntervalsByTheTokensOfTheirEvents) {
  LoadOutcome answer = outcome(0, 0.25, {0.25, 0.25, 0.5});
  answer.precisions = {"full", "low"};
  // Two tokens in the first event, none in the second, three in the third of which one is low.
  answer.event_tokens = {{0, 0, 2}, {2, 0, 2}, {2, 1, 1}, {3, -1, 4}};
  const auto series = make_load_series({answer});
  ASSERT_EQ(series.size(), 2U);
  EXPECT_EQ(series[0].tokens, 5);
  EXPECT_EQ(series[0].precision_tokens, (PrecisionTokens{{"full", 4}, {"low", 1}}));
  EXPECT_EQ(series[0].tpot.count, 2);
  EXPECT_THAT(series[0].tpot.p50, DoubleEq((0.25 + 0.25 / 3) / 2));
  EXPECT_EQ(series[1].tokens, 4);
  EXPECT_THAT(precisions_of(series), ElementsAre("full", "low"));
  EXPECT_THAT(series[1].precision_tokens, IsEmpty());
  EXPECT_EQ(series[1].tpot.p50, 0.125);
}

TEST(LoadSeries, OfNothingAndOfYearsIsEmpty) {
  EXPECT_THAT(make_load_series({}), IsEmpty());
  EXPECT_THAT(make_load_series({outcome(1e6, 0.5, {})}), IsEmpty());
  EXPECT_EQ(make_load_series({outcome(999'999, 0.5, {})}).size(), 1'000'000U);
}

TEST(SecondViolation, IsAPercentileAboveItsObjective) {
  LoadSecond second;
  second.ttft = {.count = 3, .p50 = 1, .p90 = 2, .p99 = 3};
  second.tpot = {.count = 3, .p50 = 0.01, .p90 = 0.0333, .p99 = 1};
  const Slo strict = {.ttft = 1.5, .tpot = 0.0332};
  EXPECT_TRUE(violation_of(second, strict).ttft);
  EXPECT_TRUE(violation_of(second, strict).tpot);
  const Slo exact = {.ttft = 2, .tpot = 0.0333};
  EXPECT_FALSE(violation_of(second, exact).ttft);
  EXPECT_FALSE(violation_of(second, exact).tpot);
  EXPECT_FALSE(violation_of(second, {}).ttft);
  EXPECT_FALSE(violation_of({}, strict).tpot);
}

}  // namespace
}  // namespace halley
