// Finds a request's route and checks access to it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/server/http/api_keys.h"
#include "halley/server/http/http_exchange.h"

namespace halley {

/// Immutable; any thread.
class RequestGate {
 public:
  /// Throws InputError for invalid keys and origins.
  RequestGate(std::vector<HttpRoute> routes, std::vector<std::string> api_keys,
              std::vector<std::string> cors_origins);

  /// Either a route, or the server's own answer.
  struct Verdict {
    const HttpRoute* route = nullptr;
    std::optional<HttpResponse> answer;
  };

  /// Checks method, path and headers; the body may still be missing. The route is found by the
  /// path's own bytes, and that route decides whether a key is needed.
  Verdict judge(const HttpRequest& head) const;

  /// The CORS headers of an answer to this request; empty unless its origin is allowed.
  HttpHeaders cors_headers(const HttpRequest& head) const;

 private:
  std::string allowed_methods(std::string_view path) const;
  const HttpRoute* find(std::string_view method, std::string_view path) const;
  bool has_key(const HttpRequest& head, bool& has_header) const;
  HttpResponse answer_without_route(const HttpRequest& head) const;

  std::vector<HttpRoute> routes_;
  ApiKeys keys_;
  std::vector<std::string> cors_origins_;
};

}  // namespace halley
