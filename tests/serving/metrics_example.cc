// Prints /metrics of known observations, for metrics_test.py.
#include <chrono>
#include <cstdio>

#include "halley/server/metrics/server_metrics.h"

int main() {
  using halley::FinishReason;
  halley::ServerMetrics metrics({.model_name = "models/\"demo\"\\\n",
                                 .max_model_len = 4096,
                                 .model_info = {{"format", "gptq"},
                                                {"kernels", "gemm_w4a21_avx512 88"},
                                                {"dtype", "bf16"},
                                                {"kv_dtype", "int8"},
                                                {"precision", "full"}},
                                 .routes = {"/v1/completions"}});
  metrics.observe_request(FinishReason::kStop, {.queue = 0.25,
                                                .prefill = 0.5,
                                                .first_token = 0.75,
                                                .decode = 2,
                                                .total = 2.75,
                                                .num_prompt_tokens = 300,
                                                .num_output_tokens = 17});
  const halley::TimePoint begin{};
  halley::TokenObserver observer(metrics, begin);
  for (const int milliseconds : {750, 875, 1000}) {
    observer.observe_token(begin + std::chrono::milliseconds(milliseconds));
  }
  metrics.observe_http("POST", "/v1/completions", 200, 2.75);
  metrics.observe_http("GET", "/unknown\n", 404, 0.001);
  halley::EngineStats stats;
  stats.num_running = 4;
  stats.num_pages = 64;
  stats.num_free_pages = 16;
  stats.num_prompt_tokens = 300;
  stats.num_output_tokens = 17;
  stats.num_prefix_queries = 300;
  stats.num_prefix_hits = 96;
  stats.precision.levels = {{.name = "f16", .num_steps = 3}, {.name = "e4m3", .num_steps = 2}};
  stats.precision.num_late_first_tokens = 1;
  std::fputs(metrics.render(stats, {}).c_str(), stdout);
}
