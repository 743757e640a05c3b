// The HTTP/1.1 server that routes stand on.
//
// Threads   `num_threads` threads, each with its own event loop; a connection stays with one of
// them.
//           Handlers, on_gone callbacks and the access log run there and must not block or throw.
// Limits    http_limits.h; every one of them is enforced before memory is taken.
// Keys      Once one is set, every route without `is_open` needs one, before its body is read.
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

/// One request and what became of it.
struct HttpAccess {
  std::string client;  // "127.0.0.1:51234"
  std::string method;  // empty: what came could not be read as a request
  std::string path;    // without the query, which may hold what is private
  std::string request_id;
  int status = 0;                         // 0: the client had gone before there was one
  size_t sent_bytes = 0;                  // with status line, headers and framing
  std::chrono::microseconds duration{0};  // from the first byte of the request
  bool is_complete = false;               // the whole answer was handed to the network
  std::string error;                      // what a handler threw; for the operator, never sent
};

struct HttpServerConfig {
  std::string host = "127.0.0.1";  // address or name
  uint16_t port = 0;               // 0: any that is free
  int num_threads = 2;
  HttpLimits limits = {};
  /// None: no route asks for a key.
  std::vector<std::string> api_keys = {};
  /// Web pages of these origins ("https://example.org", "*") may read answers. None: no CORS.
  std::vector<std::string> cors_origins = {};
  /// Called once for each request that was answered or whose client went. Several threads may be
  /// in it at a time.
  std::function<void(const HttpAccess&)> on_access = {};
};

class HttpServer {
 public:
  /// Throws InputError where the configuration is none: keys, origins, limits of 0, threads.
  HttpServer(HttpServerConfig config, std::vector<HttpRoute> routes);
  /// Cuts all connections and ends the threads; on_gone runs for exchanges without an answer.
  /// Exchanges that routes still hold may be used and destroyed afterwards; they do nothing. Not on
  /// a thread of the server.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Returns once the server listens. Throws InputError where it cannot, with the reason: a port in
  /// use, a host that is none of this machine. At most once.
  void start();

  /// After start().
  uint16_t port() const;
  size_t num_connections() const;

  /// New connections are rejected by the system from now on. Thread-safe; more than once too.
  void stop_accepting();

  /// stop_accepting(); closes idle connections and each other one behind its answer; waits until
  /// none is left, at most `limit`, then cuts the rest. True: nothing had to be cut. Thread-safe,
  /// but not on a thread of the server.
  bool drain(std::chrono::milliseconds limit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halley
