#include "halley/server/metrics/server_metrics.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/server/metrics/metrics_text.h"

namespace halley {
namespace {

// vLLM's bounds (v1/metrics/loggers.py), in seconds.
constexpr double kFirstTokenBounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                        0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                        20,    40,    80,   160,  640,  2560};
constexpr double kTokenBounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                   0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
constexpr double kRequestBounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                     30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
// Bounds for whole answers. Streams count too; their important times are measured above.
constexpr double kHttpBounds[] = {0.1, 0.5, 1, 5, 10, 30, 60};

constexpr const char* kMethods[] = {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"};
constexpr const char* kOther = "other";

double as_double(int64_t value) { return static_cast<double>(value); }

void render_step_sizes(MetricsText& text, const StepSizes& sizes) {
  text.family("halley:iteration_tokens_total", "histogram", "Tokens computed by a forward pass.");
  text.histogram(std::vector<double>(StepSizes::kBounds.begin(), StepSizes::kBounds.end()),
                 std::vector<uint64_t>(sizes.counts.begin(), sizes.counts.end()),
                 as_double(sizes.num_tokens));
}

}  // namespace

ServerMetrics::ServerMetrics(ServerMetricsConfig config)
    : config_(std::move(config)),
      time_to_first_token_(kFirstTokenBounds),
      inter_token_latency_(kTokenBounds),
      time_per_output_token_(kTokenBounds),
      e2e_latency_(kRequestBounds),
      queue_time_(kRequestBounds),
      prefill_time_(kRequestBounds),
      decode_time_(kRequestBounds),
      inference_time_(kRequestBounds),
      prompt_tokens_(one_two_five_bounds(config_.max_model_len)),
      generation_tokens_(one_two_five_bounds(config_.max_model_len)) {}

void ServerMetrics::observe_request(FinishReason reason, const RequestTimes& times) {
  const std::string_view name = name_of(reason);
  const auto* place = std::find(kFinishReasons.begin(), kFinishReasons.end(),
                                name == "cancelled" ? "abort" : name);  // vLLM's name
  HALLEY_CHECK(place != kFinishReasons.end(), name);
  finished_[static_cast<size_t>(place - kFinishReasons.begin())].fetch_add(
      1, std::memory_order_relaxed);
  e2e_latency_.observe(times.total);
  queue_time_.observe(times.queue);
  if (times.prefill) prefill_time_.observe(*times.prefill);
  if (times.decode) decode_time_.observe(*times.decode);
  if (times.prefill && times.decode) inference_time_.observe(*times.prefill + *times.decode);
  if (times.decode && times.num_output_tokens > 1) {
    time_per_output_token_.observe(*times.decode / as_double(times.num_output_tokens - 1));
  }
  prompt_tokens_.observe(as_double(times.num_prompt_tokens));
  generation_tokens_.observe(as_double(times.num_output_tokens));
}

void ServerMetrics::observe_http(std::string_view method, std::string_view path, int status,
                                 double seconds) {
  // A client cannot create series: only known routes, methods and statuses have one.
  const bool is_method =
      std::find(std::begin(kMethods), std::end(kMethods), method) != std::end(kMethods);
  const bool is_route =
      std::find(config_.routes.begin(), config_.routes.end(), path) != config_.routes.end();
  const std::string route(is_route ? path : std::string_view(kOther));
  const std::lock_guard lock(mutex_);
  ++http_requests_[{std::string(is_method ? method : std::string_view(kOther)), route, status}];
  auto& histogram = http_seconds_[route];
  if (!histogram) histogram = std::make_unique<Histogram>(kHttpBounds);
  histogram->observe(seconds);
}

std::string ServerMetrics::render(const EngineStats& stats, const ByteBudgetStats& answers) const {
  MetricsText text({{"model_name", config_.model_name}});
  const auto gauge = [&](const char* name, const char* help, double value) {
    text.family(name, "gauge", help);
    text.sample(value);
  };
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    text.family(name, "counter", help);
    text.sample(as_double(value));
  };
  const auto histogram = [&](const char* name, const char* help, const Histogram& values) {
    text.family(name, "histogram", help);
    text.histogram(values);
  };
  text.family("halley:model_info", "gauge", "Model, format and kernels that are served; always 1.");
  text.sample(1, config_.model_info);
  auto cache_info = config_.cache_info;
  cache_info.emplace_back("num_gpu_blocks", std::to_string(stats.num_pages));  // vLLM's name
  text.family("halley:cache_config_info", "gauge", "Configuration of the KV cache; always 1.");
  text.sample(1, cache_info);
  gauge("halley:num_requests_running", "Requests in the engine's batch.",
        as_double(stats.num_running));
  gauge("halley:num_requests_waiting", "Requests that wait to run.", as_double(stats.num_waiting));
  const int64_t num_used = stats.num_pages - stats.num_free_pages;
  gauge("halley:kv_cache_usage_perc", "Share of the KV pages that requests use; 1 is all.",
        stats.num_pages > 0 ? as_double(num_used) / as_double(stats.num_pages) : 0);
  gauge("halley:itl_target_seconds",
        "Longest time that a step should take while answers are generated; 0: no target.",
        stats.itl_target_seconds);
  gauge("halley:prefill_limit_tokens", "Tokens of prompts that the last such step could have.",
        as_double(stats.num_prefill_rows_max));
  counter("halley:engine_steps_total", "Forward passes.", stats.num_steps);
  render_step_sizes(text, stats.step_sizes);
  counter("halley:num_preemptions_total",
          "Preemptions: requests that lost their KV pages and are recomputed.",
          stats.num_preemptions);
  counter("halley:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
          stats.num_prefix_queries);
  counter("halley:prefix_cache_hits_total", "Prompt tokens found there.", stats.num_prefix_hits);
  counter("halley:prompt_tokens_total", "Prompt tokens of requests that got their first token.",
          stats.num_prompt_tokens);
  counter("halley:prompt_tokens_cached_total", "Of them those from the prefix cache.",
          stats.num_cached_prompt_tokens);
  counter("halley:generation_tokens_total", "Tokens generated.", stats.num_output_tokens);
  text.family("halley:request_success_total", "counter", "Requests that ended, by reason.");
  for (size_t i = 0; i < kFinishReasons.size(); ++i) {
    text.sample(static_cast<double>(finished_[i].load(std::memory_order_relaxed)),
                {{"finished_reason", kFinishReasons.at(i)}});
  }
  histogram("halley:time_to_first_token_seconds", "From the submit to the first token.",
            time_to_first_token_);
  histogram("halley:inter_token_latency_seconds", "Between tokens of a request.",
            inter_token_latency_);
  histogram("halley:request_time_per_output_token_seconds", "A request's mean time between tokens.",
            time_per_output_token_);
  histogram("halley:e2e_request_latency_seconds", "From the submit to the end.", e2e_latency_);
  histogram("halley:request_queue_time_seconds", "From the submit to the first step.", queue_time_);
  histogram("halley:request_prefill_time_seconds", "From there to the first token.", prefill_time_);
  histogram("halley:request_decode_time_seconds", "From the first token to the last.",
            decode_time_);
  histogram("halley:request_inference_time_seconds", "From the first step to the last token.",
            inference_time_);
  histogram("halley:request_prompt_tokens", "Prompt tokens of a request.", prompt_tokens_);
  histogram("halley:request_generation_tokens", "Tokens generated for a request.",
            generation_tokens_);
  render_answers(text, answers);
  render_http(text);
  return text.text();
}

void ServerMetrics::render_answers(MetricsText& text, const ByteBudgetStats& answers) {
  text.family("halley:answer_memory_reserved_bytes", "gauge",
              "Memory reserved for answers in the making.");
  text.sample(static_cast<double>(answers.num_taken_bytes));
  text.family("halley:answer_memory_limit_bytes", "gauge", "The most that can be reserved.");
  text.sample(static_cast<double>(answers.num_bytes_max));
  text.family("halley:answer_memory_rejections_total", "counter",
              "Requests rejected because there was no room for their answers.");
  text.sample(static_cast<double>(answers.num_rejected));
}

void ServerMetrics::render_http(MetricsText& text) const {
  const std::lock_guard lock(mutex_);
  text.family("halley:http_requests_total", "counter", "Answers by route and status.");
  for (const auto& [key, count] : http_requests_) {
    const auto& [method, route, status] = key;
    text.sample(static_cast<double>(count),
                {{"method", method}, {"handler", route}, {"status", std::to_string(status)}});
  }
  text.family("halley:http_request_duration_seconds", "histogram",
              "From a request's first byte to the end of its answer.");
  for (const auto& [route, values] : http_seconds_) text.histogram(*values, {{"handler", route}});
}

}  // namespace halley
