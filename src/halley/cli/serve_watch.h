// Connects a server to its metrics and its log: both see every sequence and every answer.
#pragma once

#include <vector>

#include "halley/engine/engine.h"
#include "halley/server/app/app_config.h"
#include "halley/server/http/http_server.h"
#include "halley/server/metrics/json_log.h"
#include "halley/server/metrics/server_metrics.h"

namespace halley::cli {

struct ServeLogOptions {
  LogLevel log_level = LogLevel::kInfo;
  bool has_access_log = true;
};

/// Writes the log to stderr. Must outlive the configurations that observe() has changed.
class ServeWatch {
 public:
  ServeWatch(ServerMetricsConfig metrics, const ServeLogOptions& options);

  JsonLog& log() { return log_; }

  /// `engine` is the engine that the app will own.
  void observe(AppConfig& config, const Engine& engine);
  void observe(HttpServerConfig& config, const std::vector<HttpRoute>& routes);

 private:
  ServerMetrics metrics_;
  JsonLog log_;
  bool has_access_log_;
};

}  // namespace halley::cli
