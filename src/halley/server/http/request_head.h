// Checks of a request's line and headers beyond their syntax.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "halley/server/http/http_exchange.h"

namespace halley {

/// The framing of the body that follows a head.
struct RequestHead {
  bool is_chunked = false;
  bool expects_continue = false;
  uint64_t content_length = 0;
};

/// Checks `request`, whose headers are complete, and reads the framing of its body. Returns null if
/// it is valid, else the answer, after which the connection must not be read.
std::optional<HttpResponse> read_head(const HttpRequest& request, bool is_http_1_0,
                                      RequestHead& head);

/// Splits a request's target into path and query. Returns null if it is valid.
std::optional<HttpResponse> read_target(std::string_view target, HttpRequest& request);

/// Whether a client's x-request-id is accepted: 1 to 64 letters, digits and "-_.:".
bool is_request_id(std::string_view id);

std::string lower_case(std::string_view text);

}  // namespace halley
