// From bytes to an HttpRequest: the syntax of HTTP/1.1 (RFC 9112) and the limits on sizes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "halley/server/http/body_budget.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/http/http_limits.h"

namespace halley {

/// What is known of a request beside its content once its head is complete.
struct RequestFraming {
  bool has_body = false;
  bool is_http_1_0 = false;
  bool keep_alive = true;
  bool expects_continue = false;
};

/// One request. Stricter than the RFC demands: what two programs may read differently (two lengths,
/// a length beside a transfer coding, a second Host, a target that is no path) is rejected.
class RequestParser {
 public:
  enum class State { kHead, kBody, kDone, kRejected };

  RequestParser(const HttpLimits& limits, std::shared_ptr<BodyBudget> budget);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  /// Uses bytes from the front and says how many; what is left belongs in front of the next ones.
  /// Stops behind the head, so that the caller can decide about it, and behind the request.
  size_t parse(std::string_view bytes);
  State state() const;

  /// In state kBody, before the body is parsed: whether its declared length is within the limit. If
  /// not, the state is kRejected.
  bool accept_body_length();

  /// Content from the end of the head on; body in state kDone. In state kRejected what was read.
  HttpRequest& request();
  const RequestFraming& framing() const;
  /// In state kRejected: the answer, after which the connection must be closed.
  HttpResponse take_rejection();
  BodyReservation take_reservation();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halley
