// Parses bytes into an HttpRequest: the syntax of HTTP/1.1 (RFC 9112) and the limits on sizes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "halley/base/byte_budget.h"
#include "halley/server/http/http_exchange.h"
#include "halley/server/http/http_limits.h"

namespace halley {

/// The properties of a request that are known once its head is complete.
struct RequestFraming {
  bool has_body = false;
  bool is_http_1_0 = false;
  bool keep_alive = true;
  bool expects_continue = false;
};

/// One request. Stricter than the RFC: it rejects requests that two programs may read differently
/// (two lengths, both a length and a transfer coding, a second Host, a target that is no path).
class RequestParser {
 public:
  enum class State { kHead, kBody, kDone, kRejected };

  RequestParser(const HttpLimits& limits, std::shared_ptr<ByteBudget> budget);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  /// Consumes bytes from the front and returns their number; the caller keeps the rest for the next
  /// call. Stops after the head, so that the caller can check it, and after the request.
  size_t parse(std::string_view bytes);
  State state() const;

  /// In state kBody, before the body is parsed: whether its declared length is within the limit. If
  /// not, the state becomes kRejected.
  bool accept_body_length();

  /// The request: complete head after the head, with body in state kDone. In state kRejected: the
  /// parts that were read.
  HttpRequest& request();
  const RequestFraming& framing() const;
  /// In state kRejected: the answer, after which the connection must be closed.
  HttpResponse take_rejection();
  ByteReservation take_reservation();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halley
