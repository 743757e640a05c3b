// Turns a connection's bytes into the next action for its request. Independent of sockets and time.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "halley/base/byte_budget.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/http/http_limits.h"
#include "halley/server/http/request_gate.h"
#include "halley/server/http/request_parser.h"

namespace halley {

/// The requests of one connection, one after the other. `limits` and `gates` must live longer.
class RequestIntake {
 public:
  RequestIntake(const HttpLimits& limits, const GateSlot& gates,
                std::shared_ptr<ByteBudget> budget);

  enum class Step {
    kNeedMore,  // bytes
    kContinue,  // the client waits for "100 Continue" before it sends the body
    kRequest,   // complete, for route(): take its parts, then reset()
    kAnswer,    // by the server itself: take_answer(), then reset() or close
  };
  /// Consumes bytes from the front; `num_used` is their number.
  Step step(std::string_view bytes, size_t& num_used);

  const HttpRoute* route() const { return route_; }
  HttpRequest& request() { return parser_->request(); }
  const RequestFraming& framing() const { return parser_->framing(); }
  ByteReservation take_reservation() { return parser_->take_reservation(); }
  HttpResponse take_answer();
  /// After kAnswer: whether the connection must be closed, since its next bytes cannot be parsed.
  bool must_close() const { return must_close_; }

  /// Whether a request has begun, and whether its head is complete.
  bool has_begun() const { return parser_ != nullptr; }
  bool is_in_body() const { return parser_ != nullptr && is_judged_; }
  /// Begins the next request.
  void reset();

 private:
  Step judge();
  Step reject();

  const HttpLimits& limits_;
  const GateSlot& gates_;
  std::shared_ptr<ByteBudget> budget_;
  std::unique_ptr<RequestParser> parser_;  // null between requests: idle connections are small
  const HttpRoute* route_ = nullptr;
  HttpResponse answer_;
  bool is_judged_ = false;
  bool must_close_ = false;
};

}  // namespace halley
