// For tests: a server with routes, which records its access log and its exchanges.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "halley/server/http/http_exchange.h"
#include "halley/server/http/http_server.h"

namespace halley {

/// Routes: GET /health (open, "ok"), POST /echo (the body), GET /throw, GET /drop (never
/// answered), GET /keep (its exchange goes to kept()), GET /sized?N (N bytes of 'x').
class TestServer {
 public:
  /// `has_any_name`: requests may have any Host.
  explicit TestServer(HttpServerConfig config = {}, bool has_any_name = true);

  uint16_t port() const { return server->port(); }

  /// The next exchange of /keep; null after 20 s.
  std::shared_ptr<HttpExchange> kept();
  /// Waits until `num` requests are logged.
  std::vector<HttpAccess> logged(size_t num);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<HttpExchange>> kept_;
  std::vector<HttpAccess> logged_;

 public:
  std::unique_ptr<HttpServer> server;  // last: its threads use the others
};

/// Set once by one thread, awaited by another.
class Flag {
 public:
  void set();
  /// False after 20 s.
  bool wait();
  int count();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

}  // namespace halley
