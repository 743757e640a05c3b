#include "halley/server/http/request_gate.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/server/http/http_error.h"
#include "halley/server/http/request_head.h"

namespace halley {
namespace {

void check_routes(const std::vector<HttpRoute>& routes) {
  for (size_t i = 0; i < routes.size(); ++i) {
    HALLEY_CHECK(routes[i].path.starts_with('/') && routes[i].handler, routes[i].path);
    for (size_t j = 0; j < i; ++j) {
      HALLEY_CHECK(routes[i].path != routes[j].path || routes[i].method != routes[j].method,
                   routes[i].method, routes[i].path);
    }
  }
}

void check_origins(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    const bool is_printable =
        std::all_of(origin.begin(), origin.end(), [](char c) { return c > ' ' && c < '\x7f'; });
    const size_t host_at = origin.find("://");
    if (origin != "*" && (!is_printable || host_at == std::string::npos || host_at == 0 ||
                          host_at + 3 == origin.size() || origin.ends_with('/'))) {
      throw InputError(str("CORS origin ", quote(origin),
                           ": expected \"*\" or scheme and host, such as \"https://example.org\", "
                           "without a path. Change the option."));
    }
  }
}

// "Bearer KEY" (RFC 6750); empty: another scheme or no key.
std::string_view bearer_key(std::string_view value) {
  constexpr std::string_view kScheme = "bearer ";
  if (lower_case(value.substr(0, kScheme.size())) != kScheme) return {};
  value.remove_prefix(kScheme.size());
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

}  // namespace

RequestGate::RequestGate(std::vector<HttpRoute> routes, std::vector<std::string> api_keys,
                         std::vector<std::string> cors_origins)
    : routes_(std::move(routes)),
      keys_(std::move(api_keys)),
      cors_origins_(std::move(cors_origins)) {
  check_routes(routes_);
  check_origins(cors_origins_);
}

const HttpRoute* RequestGate::find(std::string_view method, std::string_view path) const {
  const HttpRoute* found = nullptr;
  for (const HttpRoute& route : routes_) {
    if (route.path != path) continue;
    if (route.method == method) return &route;
    // HEAD is answered like GET, without a body.
    if (method == "HEAD" && route.method == "GET") found = &route;
  }
  return found;
}

std::string RequestGate::allowed_methods(std::string_view path) const {
  std::string methods;
  bool has_get = false;
  for (const HttpRoute& route : routes_) {
    if (route.path != path && path != "*") continue;
    if (methods.find(route.method) == std::string::npos) methods += route.method + ", ";
    has_get |= route.method == "GET";
  }
  if (methods.empty()) return {};
  if (has_get && methods.find("HEAD") == std::string::npos) methods += "HEAD, ";
  return methods + "OPTIONS";
}

bool RequestGate::has_key(const HttpRequest& head, bool& has_header) const {
  const std::string* value = head.find_header("authorization");
  has_header = value != nullptr;
  return has_header && keys_.accepts(bearer_key(*value));
}

HttpResponse RequestGate::answer_without_route(const HttpRequest& head) const {
  const std::string methods = allowed_methods(head.path);
  if (methods.empty()) {
    return http_error(404, str("No such path: ", quote(head.path), "."), "unknown_path");
  }
  if (head.method != "OPTIONS") {
    HttpResponse rejection = http_error(405,
                                        str("Method of ", quote(head.path), ": expected ", methods,
                                            ", got ", quote(head.method), "."),
                                        "method_not_allowed");
    rejection.headers.emplace_back("allow", methods);
    return rejection;
  }
  // OPTIONS lists the methods and runs none of them; a browser sends it without a key.
  HttpResponse response;
  response.status = 204;
  response.headers.emplace_back("allow", methods);
  if (head.find_header("access-control-request-method") != nullptr && !cors_headers(head).empty()) {
    response.headers.emplace_back("access-control-allow-methods", methods);
    response.headers.emplace_back("access-control-allow-headers",
                                  "authorization, content-type, x-request-id");
    response.headers.emplace_back("access-control-max-age", "600");
  }
  return response;
}

RequestGate::Verdict RequestGate::judge(const HttpRequest& head) const {
  const HttpRoute* route = find(head.method, head.path);
  if (route == nullptr) return {nullptr, answer_without_route(head)};
  bool has_header = false;
  if (!keys_.empty() && !route->is_open && !has_key(head, has_header)) {
    return {nullptr, http_error(401,
                                has_header ? "The API key is not valid."
                                           : "An API key is needed: send the header "
                                             "'Authorization: Bearer KEY'.",
                                "invalid_api_key")};
  }
  return {route, std::nullopt};
}

HttpHeaders RequestGate::cors_headers(const HttpRequest& head) const {
  if (cors_origins_.empty()) return {};
  const std::string* origin = head.find_header("origin");
  if (origin == nullptr) return {};
  HttpHeaders headers;
  for (const std::string& allowed : cors_origins_) {
    if (allowed != "*" && allowed != *origin) continue;
    headers.emplace_back("access-control-allow-origin", allowed);
    headers.emplace_back("access-control-expose-headers", "x-request-id");
    if (allowed != "*") headers.emplace_back("vary", "origin");
    return headers;
  }
  return {};
}

}  // namespace halley
