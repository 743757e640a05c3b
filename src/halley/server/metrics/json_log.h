// The log: one JSON object per line, for log collectors.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "halley/json/json.h"

namespace halley {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kOff };

/// "debug", "info", "warning", "error" or "off". Throws InputError for anything else.
LogLevel parse_log_level(std::string_view text);

/// One request and its result.
struct AccessEntry {
  std::string client, method, path, request_id;
  int status = 0;  // 0: the client was gone before
  size_t sent_bytes = 0;
  std::chrono::microseconds duration{0};
  bool is_complete = false;  // the whole answer was sent
  std::string error;         // a route's exception
};

/// Thread-safe. Never logs text of prompts or answers, which is private.
class JsonLog {
 public:
  using Sink = std::function<void(std::string_view line)>;  // with its '\n'; one call at a time
  using Clock = std::function<std::chrono::system_clock::time_point()>;

  JsonLog(LogLevel level, Sink sink, Clock clock = std::chrono::system_clock::now);

  /// {"time": "2026-01-31T12:00:00.000Z", "level": "info", "event": ..., and `fields`}. Drops
  /// events below the log's level. Invalid UTF-8 becomes U+FFFD.
  void write(LogLevel level, std::string_view event, const OrderedJson& fields = {});

  /// The event "http_request": at debug for /health, /ready, /metrics and /precision, which are
  /// polled, at error for statuses from 500 on and for a route's exception, else at info.
  void write_access(const AccessEntry& entry);

 private:
  LogLevel level_;
  Sink sink_;
  Clock clock_;
  std::mutex mutex_;
};

}  // namespace halley
