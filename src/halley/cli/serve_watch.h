// Connects a server to its metrics and its log: both see every sequence and every answer.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "halley/engine/engine.h"
#include "halley/server/app/app_config.h"
#include "halley/server/app/work_queue.h"
#include "halley/server/http/http_server.h"
#include "halley/server/metrics/json_log.h"
#include "halley/server/metrics/server_metrics.h"

namespace halley::cli {

void write_to_stderr(std::string_view line);

struct ServeLogOptions {
  LogLevel log_level = LogLevel::kInfo;
  bool has_access_log = true;
  JsonLog::Sink sink = write_to_stderr;
};

/// Must outlive the configurations that observe() has changed.
class ServeWatch {
 public:
  explicit ServeWatch(const ServeLogOptions& options);

  JsonLog& log() { return log_; }

  /// The log of all answers; the metrics have those since start_metrics().
  void observe(HttpServerConfig& config);
  /// The log of switches of the precision. `precision_names`: by level.
  void observe(EngineConfig& config, std::vector<std::string> precision_names);

  /// To be called before the next two.
  void make_metrics(ServerMetricsConfig metrics);
  /// `engine` is the engine that the app will own.
  void observe(AppConfig& config, const Engine& engine);
  /// Answers of these routes are counted by name. To be called once.
  void start_metrics(const std::vector<HttpRoute>& routes);

 private:
  JsonLog log_;
  bool has_access_log_;
  std::unique_ptr<ServerMetrics> metrics_;
  std::atomic<ServerMetrics*> http_metrics_{nullptr};  // null: answers are not counted yet
  WorkQueue log_thread_;                               // writes what the engine's thread has to say
};

}  // namespace halley::cli
