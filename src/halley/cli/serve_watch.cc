#include "halley/cli/serve_watch.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "halley/precision/precision_policy.h"

namespace halley::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Some seconds of switches; more are dropped where nobody reads the log.
constexpr size_t kWaitingLinesMax = 64;

std::vector<std::string> paths_of(const std::vector<HttpRoute>& routes) {
  std::vector<std::string> paths;
  for (const HttpRoute& route : routes) paths.push_back(route.path);
  return paths;
}

}  // namespace

void write_to_stderr(std::string_view line) { std::fwrite(line.data(), 1, line.size(), stderr); }

ServeWatch::ServeWatch(const ServeLogOptions& options)
    : log_(options.log_level, options.sink),
      has_access_log_(options.has_access_log),
      log_thread_(1, kWaitingLinesMax) {}

void ServeWatch::observe(EngineConfig& config, std::vector<std::string> precision_names) {
  // Writing to stderr may block, and the engine's thread must not.
  config.on_precision_switch = [this,
                                names = std::move(precision_names)](const PrecisionSwitch& event) {
    static_cast<void>(log_thread_.push([this, name = names.at(event.level), event] {
      log_.write(LogLevel::kInfo, "precision_switch",
                 {{"precision", name}, {"reason", name_of(event.reason)}});
    }));
  };
}

void ServeWatch::make_metrics(ServerMetricsConfig metrics) {
  metrics_ = std::make_unique<ServerMetrics>(std::move(metrics));
}

void ServeWatch::observe(AppConfig& config, const Engine& engine) {
  config.metrics = [this, &engine](const ByteBudgetStats& answers) {
    return metrics_->render(engine.stats(), answers);
  };
  config.make_observer = [this] {
    const auto tokens = std::make_shared<TokenObserver>(*metrics_, Clock::now());
    return [this, tokens](const TokenEvent& event) {
      if (event.token_id) tokens->observe_token(Clock::now());
      if (event.finish_reason) metrics_->observe_request(*event.finish_reason, *event.times);
    };
  };
  config.on_error = [this](const std::string& request_id, const std::string& what) {
    log_.write(LogLevel::kError, "request_error", {{"request_id", request_id}, {"error", what}});
  };
  config.on_ignored = [this](const std::string& request_id, const std::string& paths) {
    log_.write(LogLevel::kWarning, "ignored_members",
               {{"request_id", request_id}, {"members", paths}});
  };
}

void ServeWatch::start_metrics(const std::vector<HttpRoute>& routes) {
  metrics_->name_routes(paths_of(routes));
  http_metrics_ = metrics_.get();
}

void ServeWatch::observe(HttpServerConfig& config) {
  config.on_access = [this](const HttpAccess& access) {
    if (ServerMetrics* metrics = http_metrics_) {
      metrics->observe_http(access.method, access.path, access.status,
                            std::chrono::duration<double>(access.duration).count());
    }
    if (!has_access_log_) return;
    log_.write_access({.client = access.client,
                       .method = access.method,
                       .path = access.path,
                       .request_id = access.request_id,
                       .status = access.status,
                       .sent_bytes = access.sent_bytes,
                       .duration = access.duration,
                       .is_complete = access.is_complete,
                       .error = access.error});
  };
}

}  // namespace halley::cli
