// Finds a request's route and checks access to it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/server/http/api_keys.h"
#include "halley/server/http/browser_rules.h"
#include "halley/server/http/http_exchange.h"

namespace halley {

/// Who may use routes that are not open.
struct AccessRules {
  ApiKeys keys;
  BrowserRules browsers;
};

/// An error answer of the server itself, in the format of the route's API.
HttpResponse in_format_of(const HttpRoute& route, HttpResponse error);

/// Immutable; any thread.
class RequestGate {
 public:
  /// `rules` must live longer. `otherwise`, if given, answers all requests that no route is for.
  RequestGate(std::vector<HttpRoute> routes, const AccessRules& rules,
              std::optional<HttpResponse> otherwise = std::nullopt);

  /// Either a route, or the server's own answer.
  struct Verdict {
    const HttpRoute* route = nullptr;
    std::optional<HttpResponse> answer;
  };

  /// Checks method, path and headers; the body may still be missing. The route is found by the
  /// path's own bytes, and that route decides whether a key is needed.
  Verdict judge(const HttpRequest& head) const;

 private:
  std::string allowed_methods(std::string_view path) const;
  const HttpRoute* find(std::string_view method, std::string_view path) const;
  std::optional<HttpResponse> reject_access(const HttpRequest& head) const;
  HttpResponse answer_without_route(const HttpRequest& head) const;

  std::vector<HttpRoute> routes_;
  const AccessRules& rules_;
  std::optional<HttpResponse> otherwise_;
};

/// The gate that new requests meet. Thread-safe. Gates that were replaced are kept, as requests on
/// their way refer to their routes.
class GateSlot {
 public:
  explicit GateSlot(std::unique_ptr<const RequestGate> gate) { replace(std::move(gate)); }

  const RequestGate& get() const { return *current_.load(std::memory_order_acquire); }
  void replace(std::unique_ptr<const RequestGate> gate);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<const RequestGate>> gates_;
  std::atomic<const RequestGate*> current_{nullptr};
};

}  // namespace halley
