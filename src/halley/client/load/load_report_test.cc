#include "halley/client/load/load_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::DoubleEq;
using testing::HasSubstr;

LoadOutcome outcome(double start, double ttft, const std::vector<double>& itls, int64_t tokens) {
  LoadOutcome outcome;
  outcome.num_prompt_tokens = 10;
  outcome.num_output_tokens = tokens;
  outcome.has_usage = true;
  outcome.start = start;
  outcome.time_to_first_token = ttft;
  outcome.latency = ttft;
  outcome.inter_token_latencies = itls;
  for (const double interval : itls) outcome.latency += interval;
  return outcome;
}

// Two good requests, one of one token, one that failed.
LoadResult make_result() {
  LoadResult result;
  result.duration = 4;
  result.outcomes = {outcome(0, 0.25, {0.25, 0.5}, 3), outcome(0.5, 0.5, {1.5}, 5),
                     outcome(2.75, 0.125, {}, 1), LoadOutcome{.error = "HTTP status 500"}};
  result.outcomes[3].num_output_tokens = 7;
  return result;
}

TEST(LoadReport, CountsAndRates) {
  const LoadReport report = make_load_report(make_result(), {});
  EXPECT_EQ(report.completed, 3);
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.total_input, 30);
  EXPECT_EQ(report.total_output, 9);
  EXPECT_EQ(report.request_throughput, 0.75);
  EXPECT_EQ(report.output_throughput, 2.25);
  EXPECT_EQ(report.total_token_throughput, 9.75);
  EXPECT_EQ(report.request_goodput, std::nullopt);
  // Seconds 0 to 2: tokens at 0.25, 0.5; 1.0, 1.0; 2.5, 2.875. Two requests run in seconds 0 and 1,
  // and in second 2 the second and the third.
  EXPECT_EQ(report.peak_output_throughput, 2);
  EXPECT_EQ(report.peak_concurrent_requests, 2);
}

TEST(LoadReport, LatenciesAreThoseOfSuccesses) {
  const LoadReport report = make_load_report(make_result(), {.percents = {50, 100}});
  EXPECT_THAT(report.ttft.mean, DoubleEq(875.0 / 3));
  EXPECT_THAT(report.ttft.percentiles.at(1).second, DoubleEq(500));
  // (1 - 0.25) / 2 and (2 - 0.5) / 4; a single token has none.
  EXPECT_THAT(report.tpot.mean, DoubleEq(375));
  EXPECT_THAT(report.tpot.median, DoubleEq(375));
  EXPECT_THAT(report.itl.mean, DoubleEq(750));
  EXPECT_THAT(report.itl.median, DoubleEq(500));
  EXPECT_THAT(report.e2el.median, DoubleEq(1000));
}

TEST(LoadReport, GoodputCountsRequestsThatKeepEveryObjective) {
  const auto goodput = [](const char* slo) {
    return *make_load_report(make_result(), {.slo = parse_slo(slo, "--slo")}).request_goodput;
  };
  EXPECT_EQ(goodput("ttft=1s"), 0.75);
  EXPECT_EQ(goodput("ttft=250ms"), 0.5);  // a limit may be reached
  EXPECT_EQ(goodput("ttft=200ms"), 0.25);
  EXPECT_EQ(goodput("tpot=374ms"), 0.25);  // one token: no time per output token to break
  EXPECT_EQ(goodput("tpot=376ms,e2el=1.5s"), 0.5);
  EXPECT_EQ(goodput("ttft=1us,e2el=10s"), 0);
}

TEST(LoadReport, UsesTheAskedLengthsWhereTheServerCountsNone) {
  LoadResult result = make_result();
  result.outcomes[1].num_prompt_tokens = 0;
  result.outcomes[1].has_usage = false;
  const LoadReport report = make_load_report(result, {.input_lens = {1, 2, 3, 4}});
  EXPECT_EQ(report.total_input, 22);
  EXPECT_FALSE(report.has_usage);
}

TEST(LoadReport, OfFailuresAloneIsZero) {
  LoadResult result;
  result.outcomes = {LoadOutcome{.error = "x"}};
  const LoadReport report = make_load_report(result, {.slo = parse_slo("ttft=1s", "--slo")});
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.request_throughput, 0);
  EXPECT_EQ(report.request_goodput, 0);
  EXPECT_EQ(report.peak_concurrent_requests, 0);
  EXPECT_EQ(report.ttft.mean, 0);
}

// TTFTs end in seconds 0 (0.25 s), 1 (0.5 s) and 2 (0.125 s); intervals in seconds 0 (0.25 s), 1
// (0.5 s) and 2 (1.5 s, which covers no second whole).
TEST(LoadReport, CountsTheSecondsThatViolateAnObjective) {
  const auto violating = [](const char* slo, int64_t num_load_seconds) {
    return make_load_report(make_result(),
                            {.slo = parse_slo(slo, "--slo"), .num_load_seconds = num_load_seconds})
        .violating;
  };
  EXPECT_EQ(violating("ttft=200ms,tpot=300ms", 0).ttft, 2);
  EXPECT_EQ(violating("ttft=200ms,tpot=300ms", 0).tpot, 2);
  EXPECT_EQ(violating("ttft=500ms,tpot=300ms", 0).ttft, 0);  // a limit may be reached
  EXPECT_EQ(violating("tpot=300ms", 0).ttft, std::nullopt);
  EXPECT_EQ(violating("tpot=300ms", 0).num_seconds, 3);
  // Seconds behind the load do not count; a load may outlast its answers.
  EXPECT_EQ(violating("tpot=300ms", 2).tpot, 1);
  EXPECT_EQ(violating("tpot=300ms", 2).num_seconds, 2);
  EXPECT_EQ(violating("tpot=300ms", 10).tpot, 2);
  EXPECT_EQ(violating("tpot=300ms", 10).num_seconds, 10);
  EXPECT_EQ(violating("e2el=1s", 0).tpot, std::nullopt);
}

TEST(LoadReport, AddsUpTheTokensOfEachPrecision) {
  LoadResult result = make_result();
  EXPECT_TRUE(make_load_report(result, {}).precision_tokens.empty());
  result.outcomes[0].precision_tokens = {{"full", 2}, {"low", 1}};
  result.outcomes[1].precision_tokens = {{"low", 5}};
  result.outcomes[3].precision_tokens = {{"low", 100}};  // of a failure
  const LoadReport report = make_load_report(result, {});
  EXPECT_EQ(report.precision_tokens, (PrecisionTokens{{"full", 2}, {"low", 6}}));
  EXPECT_THAT(format_load_report(report, {}), HasSubstr("Generated tokens in low:"));
  const OrderedJson json = load_report_json(report, result, {});
  EXPECT_EQ(json.at("output_tokens_by_precision"), OrderedJson({{"full", 2}, {"low", 6}}));
}

TEST(LoadReport, SaysHowManyTokensAnEventHas) {
  // 9 tokens in 3, 2 and 1 events.
  EXPECT_EQ(make_load_report(make_result(), {}).tokens_per_event, 1.5);
  EXPECT_EQ(make_load_report({}, {}).tokens_per_event, 0);
}

// The layout that vLLM 0.11 and later print.
TEST(LoadReport, IsPrintedAsVllmPrintsIt) {
  const LoadReportOptions options{.percents = {90, 99.9},
                                  .slo = parse_slo("ttft=1s", "--slo"),
                                  .request_rate = 2.5,
                                  .max_concurrency = 8};
  const std::string text = format_load_report(make_load_report(make_result(), options), options);
  EXPECT_EQ(text,
            "============ Serving Benchmark Result ============\n"
            "Successful requests:                     3         \n"
            "Failed requests:                         1         \n"
            "Maximum request concurrency:             8         \n"
            "Request rate configured (RPS):           2.50      \n"
            "Benchmark duration (s):                  4.00      \n"
            "Total input tokens:                      30        \n"
            "Total generated tokens:                  9         \n"
            "Request throughput (req/s):              0.75      \n"
            "Request goodput (req/s):                 0.75      \n"
            "Output token throughput (tok/s):         2.25      \n"
            "Peak output token throughput (tok/s):    2.00      \n"
            "Peak concurrent requests:                2.00      \n"
            "Total token throughput (tok/s):          9.75      \n"
            "Seconds of load:                         3         \n"
            "Seconds with P90 TTFT above its SLO:     0         \n"
            "---------------Time to First Token----------------\n"
            "Mean TTFT (ms):                          291.67    \n"
            "Median TTFT (ms):                        250.00    \n"
            "P90 TTFT (ms):                           450.00    \n"
            "P99.9 TTFT (ms):                         499.50    \n"
            "-----Time per Output Token (excl. 1st token)------\n"
            "Mean TPOT (ms):                          375.00    \n"
            "Median TPOT (ms):                        375.00    \n"
            "P90 TPOT (ms):                           375.00    \n"
            "P99.9 TPOT (ms):                         375.00    \n"
            "---------------Inter-token Latency----------------\n"
            "Mean ITL (ms):                           750.00    \n"
            "Median ITL (ms):                         500.00    \n"
            "P90 ITL (ms):                            1300.00   \n"
            "P99.9 ITL (ms):                          1498.00   \n"
            "==================================================\n");
}

TEST(LoadReport, JsonHasTheKeysOfVllmAndEveryRequest) {
  const LoadReportOptions options{.percents = {99}};
  const LoadResult result = make_result();
  const OrderedJson json = load_report_json(make_load_report(result, options), result, options);
  EXPECT_EQ(json.at("completed"), 3);
  EXPECT_EQ(json.at("total_output_tokens"), 9);
  EXPECT_TRUE(json.at("request_goodput").is_null());
  EXPECT_EQ(json.at("mean_tpot_ms"), 375);
  EXPECT_TRUE(json.contains("p99_itl_ms"));
  EXPECT_TRUE(json.contains("std_e2el_ms"));
  EXPECT_EQ(json.at("errors"), OrderedJson::array({"", "", "", "HTTP status 500"}));
  EXPECT_EQ(json.at("ttfts").size(), 4U);
  EXPECT_EQ(json.at("itls").at(0), OrderedJson::array({0.25, 0.5}));
  EXPECT_EQ(json.at("seconds").size(), 3U);
  EXPECT_EQ(json.at("violating_seconds"), OrderedJson({{"of", 3}}));
}

}  // namespace
}  // namespace halley
