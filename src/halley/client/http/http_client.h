// An HTTP client for load generators: many concurrent HTTP/1.1 requests to one server, on the
// caller's thread.
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
  uint32_t header_bytes_max = 16 << 10;  // headers of an answer
  uint64_t body_bytes_max = uint64_t{64} << 20;
  SseLimits events = {};
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds idle_timeout{600'000};  // without a byte of the answer
};

struct HttpClientRequest {
  std::string method = "GET";
  std::string target = "/";                                       // appended to the URL's path
  std::vector<std::pair<std::string, std::string>> headers = {};  // other than Host and lengths
  std::string body = {};
};

/// How an exchange ended.
struct HttpClientResult {
  int status = 0;     // 0: no status line arrived
  std::string body;   // for answers that are no event stream; maybe incomplete
  std::string error;  // empty: the HTTP answer is complete
  bool is_event_stream = false;
};

struct HttpClientHandler {
  std::function<void(SseEvent)> on_event;        // for answers with text/event-stream and 2xx
  std::function<void(HttpClientResult)> on_end;  // exactly once
};

/// Opens one connection per request and closes it after it: the measured time includes connecting,
/// and a dropped connection breaks only one request. Not thread-safe; callbacks run inside run(),
/// may start() and schedule() more, and must not throw.
class HttpClient {
 public:
  using Clock = std::chrono::steady_clock;

  /// Looks up the host, which may block. Throws InputError if it does not exist.
  explicit HttpClient(HttpUrl url, const HttpClientLimits& limits = {});
  /// Drops running requests; their on_end is not called.
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
