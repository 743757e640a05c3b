// Which route a request is for, and whether it may take it.
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
  /// Throws InputError for keys and origins that are none.
  RequestGate(std::vector<HttpRoute> routes, std::vector<std::string> api_keys,
              std::vector<std::string> cors_origins);

  /// Either a route, or the answer that the server gives by itself.
  struct Verdict {
    const HttpRoute* route = nullptr;
    std::optional<HttpResponse> answer;
  };

  /// Looks at method, path and headers; the body may be missing yet. The route is found by the
  /// path's own bytes, and the key is asked for by the route that was found.
  Verdict judge(const HttpRequest& head) const;

  /// What an answer to this request says to a browser; empty unless its origin is allowed.
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
