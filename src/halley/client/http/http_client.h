// Many concurrent HTTP/1.1 requests to one server, on the caller's thread: what a load generator
// needs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/client/http/http_url.h"
#include "halley/client/http/sse_parser.h"

namespace halley {

struct HttpClientLimits {
  uint32_t header_bytes_max = 16 << 10;  // of an answer
  uint64_t body_bytes_max = uint64_t{64} << 20;
  SseLimits events = {};
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds idle_timeout{600'000};  // without a byte of the answer
};

struct HttpClientRequest {
  std::string method = "GET";
  std::string target = "/";                                       // behind the URL's path
  std::vector<std::pair<std::string, std::string>> headers = {};  // beside Host and lengths
  std::string body = {};
};

/// How an exchange ended.
struct HttpClientResult {
  int status = 0;     // 0: no status line came
  std::string body;   // of an answer that is no event stream; what came of it
  std::string error;  // empty: the answer is complete in the sense of HTTP
  bool is_event_stream = false;
};

struct HttpClientHandler {
  std::function<void(SseEvent)> on_event;        // of answers with text/event-stream and 2xx
  std::function<void(HttpClientResult)> on_end;  // exactly once
};

/// One connection a request, closed behind it: a measured request pays for its connection, and a
/// server that drops one connection breaks one request. Not thread-safe; callbacks run inside
/// run(), may start() and schedule() more, and must not throw.
class HttpClient {
 public:
  using Clock = std::chrono::steady_clock;

  /// Looks the host up, which may block. Throws InputError where there is none.
  explicit HttpClient(HttpUrl url, const HttpClientLimits& limits = {});
  /// Drops what runs; its on_end is not called.
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void start(const HttpClientRequest& request, HttpClientHandler handler);
  /// Calls `action` inside run() at the given time, or soon after.
  void schedule(Clock::time_point time, std::function<void()> action);
  /// Returns when no request and no action is left, or after stop().
  void run();
  /// Ends run(); may be called from a callback.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halley
