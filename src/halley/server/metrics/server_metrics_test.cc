#include "halley/server/metrics/server_metrics.h"

#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/server/metrics/metrics_text.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(Histogram, ABoundIsTheLargestValueOfItsBucket) {
  Histogram histogram(std::vector<double>{1, 2.5});
  for (const double value : {-1.0, 1.0, 1.5, 2.5, 2.6}) histogram.observe(value);
  EXPECT_THAT(histogram.counts(), ElementsAre(2, 2, 1));
  EXPECT_DOUBLE_EQ(histogram.sum(), 6.6);
}

TEST(Histogram, DropsWhatIsNotFinite) {
  Histogram histogram(std::vector<double>{1});
  histogram.observe(NAN);
  histogram.observe(std::numeric_limits<double>::infinity());
  EXPECT_THAT(histogram.counts(), ElementsAre(0, 0));
  EXPECT_EQ(histogram.sum(), 0);
}

TEST(Histogram, CountsWhatManyThreadsObserve) {
  Histogram histogram(std::vector<double>{1, 2});
  constexpr int kThreads = 4, kObservations = 10'000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&histogram, i] {
      for (int j = 0; j < kObservations; ++j) histogram.observe(i % 2 + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(histogram.counts(), ElementsAre(20'000, 20'000, 0));
  EXPECT_EQ(histogram.sum(), 60'000);
}

// vLLM's build_1_2_5_buckets(100) and (300), as its docstring has them.
TEST(Histogram, OneTwoFiveBoundsAreThoseOfVllm) {
  EXPECT_THAT(one_two_five_bounds(100), ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(one_two_five_bounds(300), ElementsAre(1, 2, 5, 10, 20, 50, 100, 200));
  EXPECT_THAT(one_two_five_bounds(0), ElementsAre(1));
}

TEST(MetricsText, EscapesLabelsAndWritesNumbersShortly) {
  MetricsText text(MetricLabels{std::pair<std::string, std::string>("model_name", "a\"b\\c\nd")});
  text.family("x", "gauge", "Help.");
  text.sample(0.1, {{"k", "v"}});
  text.sample(1e300);
  EXPECT_EQ(text.text(),
            "# HELP x Help.\n# TYPE x gauge\n"
            "x{model_name=\"a\\\"b\\\\c\\nd\",k=\"v\"} 0.1\n"
            "x{model_name=\"a\\\"b\\\\c\\nd\"} 1e+300\n");
}

ServerMetricsConfig config() {
  return {.model_name = "demo",
          .max_model_len = 100,
          .model_info = {{"format", "gptq"}},
          .cache_info = {{"block_size", "16"}},
          .routes = {"/v1/completions", "/health"}};
}

TEST(ServerMetrics, ShowsWhatTheEngineCounts) {
  EngineStats stats;
  stats.num_running = 3;
  stats.num_waiting = 2;
  stats.num_pages = 80;
  stats.num_free_pages = 60;
  stats.num_preemptions = 7;
  stats.itl_target_seconds = 0.05;
  stats.num_prefill_rows_max = 24;
  stats.num_output_tokens = 12'345'678'901;
  for (const int64_t num_rows : {1, 1, 8, 9, 20'000}) stats.step_sizes.add(num_rows);
  const std::string text = ServerMetrics(config()).render(stats, {});
  const std::string labels = "{model_name=\"demo\"} ";
  EXPECT_THAT(text, HasSubstr("halley:num_requests_running" + labels + "3\n"));
  EXPECT_THAT(text, HasSubstr("halley:num_requests_waiting" + labels + "2\n"));
  EXPECT_THAT(text, HasSubstr("halley:kv_cache_usage_perc" + labels + "0.25\n"));
  EXPECT_THAT(text, HasSubstr("halley:num_preemptions_total" + labels + "7\n"));
  EXPECT_THAT(text, HasSubstr("halley:itl_target_seconds" + labels + "0.05\n"));
  EXPECT_THAT(text, HasSubstr("halley:prefill_limit_tokens" + labels + "24\n"));
  const std::string sizes = "halley:iteration_tokens_total";
  const std::string bucket = sizes + "_bucket{model_name=\"demo\",le=";
  EXPECT_THAT(text, HasSubstr(bucket + "\"1.0\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "\"8.0\"} 3\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "\"16384.0\"} 4\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "\"+Inf\"} 5\n"));
  EXPECT_THAT(text, HasSubstr(sizes + "_sum" + labels + "20019\n"));
  EXPECT_THAT(text, HasSubstr("halley:generation_tokens_total" + labels + "12345678901\n"));
  EXPECT_THAT(text, HasSubstr("halley:model_info{model_name=\"demo\",format=\"gptq\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("halley:cache_config_info{model_name=\"demo\",block_size=\"16\","
                              "num_gpu_blocks=\"80\"} 1\n"));
}

PrecisionStats two_precisions() {
  PrecisionStats stats;
  stats.levels = {{.name = "f16",
                   .num_steps = 7,
                   .num_tokens = 21,
                   .seconds = 1.5,
                   .predicted = {.predicted_seconds = 1.25, .measured_seconds = 1.125},
                   .switched = {.predicted_seconds = 0.125, .measured_seconds = 0.25}},
                  {.name = "e4m3",
                   .num_steps = 5,
                   .num_tokens = 50'000'000'001,
                   .seconds = 0.75,
                   .predicted = {.predicted_seconds = 0.5, .measured_seconds = 0.625},
                   .switched = {.predicted_seconds = 0.0625, .measured_seconds = 0.03125}}};
  stats.level = 1;
  stats.num_switches = 3;
  return stats;
}

TEST(ServerMetrics, ShowTheStepsOfEachPrecision) {
  EngineStats stats;
  stats.precision = two_precisions();
  const std::string text = ServerMetrics(config()).render(stats, {});
  const auto expect = [&](const std::string& name, const char* full, const char* low) {
    const std::string begin = "halley:" + name + "{model_name=\"demo\",precision=\"";
    EXPECT_THAT(text, HasSubstr(begin + "f16\"} " + full + "\n"));
    EXPECT_THAT(text, HasSubstr(begin + "e4m3\"} " + low + "\n"));
  };
  expect("precision_active", "0", "1");
  expect("precision_steps_total", "7", "5");
  expect("precision_tokens_total", "21", "50000000001");
  expect("precision_seconds_total", "1.5", "0.75");
  expect("precision_switched_predicted_step_seconds_total", "0.125", "0.0625");
  expect("precision_switched_measured_step_seconds_total", "0.25", "0.03125");
  expect("precision_predicted_step_seconds_total", "1.25", "0.5");
  expect("precision_measured_step_seconds_total", "1.125", "0.625");
  EXPECT_THAT(text, HasSubstr("halley:precision_switches_total{model_name=\"demo\"} 3\n"));
}

TEST(ServerMetrics, AModelWithOnePrecisionHasViolationsAlone) {
  EngineStats stats;
  stats.precision.num_late_first_tokens = 4;
  stats.precision.num_slow_requests = 2;
  const std::string text = ServerMetrics(config()).render(stats, {});
  const std::string name = "halley:slo_violations_total{model_name=\"demo\",kind=";
  EXPECT_THAT(text, HasSubstr(name + "\"ttft\"} 4\n"));
  EXPECT_THAT(text, HasSubstr(name + "\"tpot\"} 2\n"));
  EXPECT_THAT(text, Not(HasSubstr("halley:precision")));
}

TEST(ServerMetrics, ShowsTheMemoryOfAnswers) {
  const std::string text = ServerMetrics(config()).render(
      {}, {.num_bytes_max = 5'000'000'001, .num_taken_bytes = 4'000'000'001, .num_rejected = 2});
  const std::string labels = "{model_name=\"demo\"} ";
  EXPECT_THAT(text, HasSubstr("halley:answer_memory_limit_bytes" + labels + "5000000001\n"));
  EXPECT_THAT(text, HasSubstr("halley:answer_memory_reserved_bytes" + labels + "4000000001\n"));
  EXPECT_THAT(text, HasSubstr("halley:answer_memory_rejections_total" + labels + "2\n"));
}

TEST(ServerMetrics, AnEngineWithoutPagesUsesNone) {
  EXPECT_THAT(ServerMetrics(config()).render({}, {}),
              HasSubstr("halley:kv_cache_usage_perc{model_name=\"demo\"} 0\n"));
}

TEST(ServerMetrics, ObservesWhatARequestReached) {
  ServerMetrics metrics(config());
  metrics.observe_request(FinishReason::kLength, {.queue = 0.5,
                                                  .prefill = 1.5,
                                                  .first_token = 2,
                                                  .decode = 3,
                                                  .total = 5.25,
                                                  .num_prompt_tokens = 40,
                                                  .num_output_tokens = 7});
  metrics.observe_request(FinishReason::kCancelled, {.queue = 0.25,
                                                     .prefill = {},
                                                     .first_token = {},
                                                     .decode = {},
                                                     .total = 0.25,
                                                     .num_prompt_tokens = 3});
  const std::string text = metrics.render({}, {});
  const auto has = [&](const std::string& name, const std::string& more, const std::string& value) {
    EXPECT_THAT(text,
                HasSubstr("halley:" + name + "{model_name=\"demo\"" + more + "} " + value + "\n"));
  };
  has("request_success_total", ",finished_reason=\"length\"", "1");
  has("request_success_total", ",finished_reason=\"abort\"", "1");
  has("request_success_total", ",finished_reason=\"stop\"", "0");
  has("e2e_request_latency_seconds_sum", "", "5.5");
  has("e2e_request_latency_seconds_count", "", "2");
  has("request_queue_time_seconds_bucket", ",le=\"0.3\"", "1");
  has("request_prefill_time_seconds_count", "", "1");
  has("request_decode_time_seconds_sum", "", "3");
  has("request_inference_time_seconds_sum", "", "4.5");
  has("request_time_per_output_token_seconds_bucket", ",le=\"0.4\"", "0");
  has("request_time_per_output_token_seconds_bucket", ",le=\"0.5\"", "1");
  has("request_prompt_tokens_bucket", ",le=\"5.0\"", "1");
  has("request_prompt_tokens_bucket", ",le=\"50.0\"", "2");
  has("request_generation_tokens_sum", "", "7");
}

TEST(TokenObserver, TheFirstTokenIsNoInterTokenLatency) {
  ServerMetrics metrics(config());
  const TimePoint begin{};
  TokenObserver observer(metrics, begin);
  for (const int milliseconds : {2000, 2030, 2070}) {
    observer.observe_token(begin + std::chrono::milliseconds(milliseconds));
  }
  const std::string text = metrics.render({}, {});
  EXPECT_THAT(text, HasSubstr("time_to_first_token_seconds_sum{model_name=\"demo\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("time_to_first_token_seconds_count{model_name=\"demo\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("inter_token_latency_seconds_count{model_name=\"demo\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("inter_token_latency_seconds_bucket{model_name=\"demo\","
                              "le=\"0.025\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("inter_token_latency_seconds_bucket{model_name=\"demo\","
                              "le=\"0.05\"} 2\n"));
}

TEST(ServerMetrics, AClientCannotMakeSeries) {
  ServerMetrics metrics(config());
  metrics.observe_http("POST", "/v1/completions", 200, 0.25);
  metrics.observe_http("POST", "/v1/completions", 200, 2);
  metrics.observe_http("GET", "/health", 200, 0.001);
  for (int i = 0; i < 100; ++i) {
    const std::string name = "/x" + std::to_string(i);
    metrics.observe_http(name, name, 404, 0.001);
  }
  const std::string text = metrics.render({}, {});
  EXPECT_THAT(text, HasSubstr("halley:http_requests_total{model_name=\"demo\",method=\"POST\","
                              "handler=\"/v1/completions\",status=\"200\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("halley:http_requests_total{model_name=\"demo\",method=\"other\","
                              "handler=\"other\",status=\"404\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("halley:http_request_duration_seconds_sum{model_name=\"demo\","
                              "handler=\"/v1/completions\"} 2.25\n"));
  EXPECT_THAT(text, Not(HasSubstr("/x1")));
}

}  // namespace
}  // namespace halley
