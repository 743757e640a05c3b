// What must hold of a request's line and headers beyond their syntax.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "halley/server/http/http_exchange.h"

namespace halley {

/// What a head says of the body that follows.
struct RequestHead {
  bool is_chunked = false;
  bool expects_continue = false;
  uint64_t content_length = 0;
};

/// Checks `request`, whose headers are complete, and reads what frames its body. Null: fine; else
/// the answer, after which nothing that follows on the connection may be read.
std::optional<HttpResponse> read_head(const HttpRequest& request, bool is_http_1_0,
                                      RequestHead& head);

/// Cuts a request's target into path and query. Null: fine.
std::optional<HttpResponse> read_target(std::string_view target, HttpRequest& request);

/// Whether a client's x-request-id is taken over: 1 to 64 letters, digits and "-_.:".
bool is_request_id(std::string_view id);

std::string lower_case(std::string_view text);

}  // namespace halley
