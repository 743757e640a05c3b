#include "halley/server/http/request_gate.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/server/http/http_error.h"

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

// The text with each %XX replaced by its byte; null where one is no such escape or stands for a
// control character, which no name has.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned byte = 0;
    if (i + 2 >= text.size()) return std::nullopt;
    const char* digits = text.data() + i + 1;
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc() || end != digits + 2 || byte < ' ' || byte == 0x7f) {
      return std::nullopt;
    }
    decoded += static_cast<char>(byte);
    i += 2;
  }
  return decoded;
}

bool is_name(std::string_view text) {
  constexpr size_t kNameBytesMax = 128;
  return !text.empty() && text.size() <= kNameBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

bool has_path(const HttpRoute& route, std::string_view path) {
  if (route.takes_name) {
    return path.starts_with(route.path) && is_name(path.substr(route.path.size()));
  }
  if (route.path == path) return true;
  if (route.encoded_from == 0 || path.find('%') == std::string_view::npos) return false;
  const std::string_view exact = std::string_view(route.path).substr(0, route.encoded_from);
  if (!path.starts_with(exact)) return false;
  const auto name = percent_decoded(path.substr(exact.size()));
  return name.has_value() && *name == std::string_view(route.path).substr(exact.size());
}

}  // namespace

HttpResponse in_format_of(const HttpRoute& route, HttpResponse error) {
  if (route.error_body != nullptr) error.body = route.error_body(error.status, error.body);
  return error;
}

RequestGate::RequestGate(std::vector<HttpRoute> routes, const AccessRules& rules,
                         std::optional<HttpResponse> otherwise)
    : routes_(std::move(routes)), rules_(rules), otherwise_(std::move(otherwise)) {
  check_routes(routes_);
}

const HttpRoute* RequestGate::find(std::string_view method, std::string_view path) const {
  const HttpRoute* found = nullptr;
  for (const HttpRoute& route : routes_) {
    if (!has_path(route, path)) continue;
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
    if (path != "*" && !has_path(route, path)) continue;
    if (methods.find(route.method) == std::string::npos) methods += route.method + ", ";
    has_get |= route.method == "GET";
  }
  if (methods.empty()) return {};
  if (has_get && methods.find("HEAD") == std::string::npos) methods += "HEAD, ";
  return methods + "OPTIONS";
}

// Null: who sent it may use routes that are not open.
std::optional<HttpResponse> RequestGate::reject_access(const HttpRequest& head) const {
  if (auto rejection = rules_.browsers.reject_host(head)) return rejection;
  if (!rules_.keys.empty() && !rules_.keys.accepts(key_of(head))) {
    const bool has_header =
        head.find_header("authorization") != nullptr || head.find_header("x-api-key") != nullptr;
    return http_error(401,
                      has_header ? "The API key is not valid."
                                 : "An API key is needed: send the header 'Authorization: Bearer "
                                   "KEY' or 'x-api-key: KEY'.",
                      "invalid_api_key");
  }
  return rules_.browsers.reject_page(head);
}

HttpResponse RequestGate::answer_without_route(const HttpRequest& head) const {
  if (otherwise_.has_value()) return *otherwise_;
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
  for (auto& header : rules_.browsers.preflight_headers(head, methods)) {
    response.headers.push_back(std::move(header));
  }
  return response;
}

RequestGate::Verdict RequestGate::judge(const HttpRequest& head) const {
  const HttpRoute* route = find(head.method, head.path);
  if (route == nullptr) return {nullptr, answer_without_route(head)};
  if (route->is_open) return {route, std::nullopt};
  if (auto rejection = reject_access(head)) {
    return {nullptr, in_format_of(*route, std::move(*rejection))};
  }
  return {route, std::nullopt};
}

void GateSlot::replace(std::unique_ptr<const RequestGate> gate) {
  const std::lock_guard lock(mutex_);
  gates_.push_back(std::move(gate));
  current_.store(gates_.back().get(), std::memory_order_release);
}

}  // namespace halley
