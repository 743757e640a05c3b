#include "halley/server/metrics/json_log.h"

#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr std::array<const char*, 5> kLevelNames = {"debug", "info", "warning", "error", "off"};

std::string time_text(std::chrono::system_clock::time_point time) {
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(milliseconds);
  const std::time_t whole = seconds.count();
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  std::array<char, 40> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + size, text.size() - size, ".%03dZ",
                static_cast<int>((milliseconds - seconds).count()));
  return text.data();
}

}  // namespace

LogLevel parse_log_level(std::string_view text) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (text == kLevelNames.at(i)) return static_cast<LogLevel>(i);
  }
  throw InputError(
      str("--log-level: expected debug, info, warning, error or off, got ", quote(text), "."));
}

JsonLog::JsonLog(LogLevel level, Sink sink, Clock clock)
    : level_(level), sink_(std::move(sink)), clock_(std::move(clock)) {}

void JsonLog::write(LogLevel level, std::string_view event, const OrderedJson& fields) {
  if (level < level_ || level == LogLevel::kOff) return;
  OrderedJson line = {{"time", time_text(clock_())},
                      {"level", kLevelNames.at(static_cast<size_t>(level))},
                      {"event", event}};
  if (fields.is_object()) line.update(fields);
  const std::string text = line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  const std::lock_guard lock(mutex_);
  sink_(text);
}

void JsonLog::write_access(const AccessEntry& entry) {
  const bool is_poll = entry.path == "/health" || entry.path == "/ready" ||
                       entry.path == "/metrics" || entry.path == "/precision";
  const bool is_error = entry.status >= 500 || !entry.error.empty();
  const LogLevel level = is_error ? LogLevel::kError : is_poll ? LogLevel::kDebug : LogLevel::kInfo;
  if (level < level_) return;
  using Milliseconds = std::chrono::duration<double, std::milli>;
  OrderedJson fields = {{"request_id", entry.request_id},
                        {"client", entry.client},
                        {"method", entry.method},
                        {"path", entry.path},
                        {"status", entry.status},
                        {"sent_bytes", entry.sent_bytes},
                        {"duration_ms", Milliseconds(entry.duration).count()},
                        {"is_complete", entry.is_complete}};
  if (!entry.error.empty()) fields["error"] = entry.error;
  write(level, "http_request", fields);
}

}  // namespace halley
