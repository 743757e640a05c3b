// The HTTP/1.1 server.
//
// Threads   `num_threads` threads, each with its own event loop; a connection stays with one of
// them.
//           Handlers, on_gone callbacks and the access log run there and must not block or throw.
// Limits    http_limits.h; every one of them is enforced before memory is taken.
// Keys      Once one is set, every route without `is_open` needs one, before its body is read.
// Browsers  browser_rules.h: without a key, pages of other sites are rejected.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "halley/server/http/http_exchange.h"
#include "halley/server/http/http_limits.h"

namespace halley {

/// One request and its result, for the access log.
struct HttpAccess {
  std::string client;  // "127.0.0.1:51234"
  std::string method;  // empty: the bytes were no request
  std::string path;    // without the query, which may be private
  std::string request_id;
  int status = 0;                         // 0: the client was gone before
  size_t sent_bytes = 0;                  // including status line, headers and framing
  std::chrono::microseconds duration{0};  // from the first byte of the request
  bool is_complete = false;               // the whole answer was handed to the network
  std::string error;                      // a handler's exception; for the operator, never sent
};

struct HttpServerConfig {
  std::string host = "127.0.0.1";  // address or name
  uint16_t port = 0;               // 0: any free one
  int num_threads = 2;
  HttpLimits limits = {};
  /// Empty: no route needs a key.
  std::vector<std::string> api_keys = {};
  /// Names of the server other than `host` and loopback ones, with or without a port, as a proxy
  /// passes them on (browser_rules.h). Where there are any, all others are rejected.
  std::vector<std::string> allowed_hosts = {};
  /// Web pages of these origins ("https://example.org", "*") may use the server. Empty: no CORS.
  std::vector<std::string> allowed_origins = {};
  /// The silence after which HttpExchange::keep_alive() sends something; 0: never.
  std::chrono::milliseconds keep_alive{15'000};
  /// Called once for each request that was answered or whose client is gone. Several threads may
  /// call it at a time.
  std::function<void(const HttpAccess&)> on_access = {};
};

class HttpServer {
 public:
  /// Throws InputError for an invalid configuration: keys, hosts, origins, limits of 0,
  /// threads.
  HttpServer(HttpServerConfig config, std::vector<HttpRoute> routes);
  /// The same for a server that starts before its routes can be used: `otherwise` is the answer to
  /// all requests but those of `routes`, until set_routes().
  HttpServer(HttpServerConfig config, std::vector<HttpRoute> routes, HttpResponse otherwise);
  /// Closes all connections and ends the threads; on_gone runs for exchanges without an answer.
  /// Exchanges that routes still hold may be used and destroyed afterwards; they do nothing. Must
  /// not run on a thread of the server.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Returns once the server listens. Throws InputError if it cannot, with the reason: a port in
  /// use, a host that is not on this machine. Call it at most once.
  void start();

  /// New requests meet these routes instead. What they refer to must outlive the server.
  /// Thread-safe.
  void set_routes(std::vector<HttpRoute> routes);

  /// Valid after start().
  uint16_t port() const;
  /// Valid after start(): whether only this machine reaches the server.
  bool is_loopback() const;
  size_t num_connections() const;

  /// The system rejects new connections from now on. Thread-safe; may be called again.
  void stop_accepting();

  /// Calls stop_accepting(); closes idle connections, and the others after their answers; waits up
  /// to `limit`, then closes the rest. Returns true if all had ended in time. Thread-safe, but must
  /// not run on a thread of the server.
  bool drain(std::chrono::milliseconds limit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halley
