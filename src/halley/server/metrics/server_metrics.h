// The metrics of a server. Names (after the prefix "halley:") and buckets are vLLM's, so that its
// dashboards need only a new prefix.
//
// Halley has its own registry: Debian has prometheus-cpp as shared libraries only, and its counters
// cannot be set to totals that the engine has counted already.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "halley/base/byte_budget.h"
#include "halley/engine/engine.h"
#include "halley/engine/request_times.h"
#include "halley/server/metrics/histogram.h"

namespace halley {

class MetricsText;

struct ServerMetricsConfig {
  std::string model_name;  // the served name
  int64_t max_model_len = 0;
  /// Labels of halley:model_info: format, kernels, dtype, kv_dtype, precision, version, ...
  std::vector<std::pair<std::string, std::string>> model_info = {};
  /// Labels of halley:cache_config_info other than the number of pages.
  std::vector<std::pair<std::string, std::string>> cache_info = {};
  /// Paths that are counted by name; all others count as "other".
  std::vector<std::string> routes = {};
};

/// Thread-safe. Only observe_http takes a lock, a short one.
class ServerMetrics {
 public:
  explicit ServerMetrics(ServerMetricsConfig config);

  /// Replaces the labels of the configuration. To be called before the first observation.
  void name_routes(std::vector<std::string> routes) { config_.routes = std::move(routes); }

  /// The time between two consecutive tokens of a request. Once per token: two relaxed additions.
  void observe_inter_token_latency(double seconds) { inter_token_latency_.observe(seconds); }

  /// To be called at a request's first token, so that a scrape sees it while the request runs.
  void observe_first_token(double seconds) { time_to_first_token_.observe(seconds); }

  /// Observes a request that has ended for any reason, except its time to first token.
  void observe_request(FinishReason reason, const RequestTimes& times);

  /// Observes an answer, complete or not. `status` 0: the client was gone before there was one.
  void observe_http(std::string_view method, std::string_view path, int status, double seconds);

  /// The text of /metrics. `stats` are the engine's, `answers` the memory of answers in the making,
  /// both taken now.
  std::string render(const EngineStats& stats, const ByteBudgetStats& answers) const;

 private:
  static void render_answers(MetricsText& text, const ByteBudgetStats& answers);
  void render_http(MetricsText& text) const;

  static constexpr std::array<const char*, 5> kFinishReasons = {"stop", "length", "abort",
                                                                "deadline", "error"};
  using HttpKey = std::tuple<std::string, std::string, int>;  // method, route, status

  ServerMetricsConfig config_;
  Histogram time_to_first_token_, inter_token_latency_, time_per_output_token_;
  Histogram e2e_latency_, queue_time_, prefill_time_, decode_time_, inference_time_;
  Histogram prompt_tokens_, generation_tokens_;
  std::array<std::atomic<uint64_t>, kFinishReasons.size()> finished_{};
  mutable std::mutex mutex_;  // guards the two below
  std::map<HttpKey, uint64_t> http_requests_;
  std::map<std::string, std::unique_ptr<Histogram>> http_seconds_;  // by route
};

/// The times of one request's tokens. Not thread-safe; the metrics must outlive it.
class TokenObserver {
 public:
  TokenObserver(ServerMetrics& metrics, TimePoint submitted)
      : metrics_(metrics), last_(submitted) {}

  /// Observes a token now: the first as time to first token, the others as inter-token latency.
  void observe_token(TimePoint now) {
    const double seconds = std::chrono::duration<double>(now - last_).count();
    if (is_first_) {
      metrics_.observe_first_token(seconds);
    } else {
      metrics_.observe_inter_token_latency(seconds);
    }
    is_first_ = false;
    last_ = now;
  }

 private:
  ServerMetrics& metrics_;
  TimePoint last_;
  bool is_first_ = true;
};

}  // namespace halley
