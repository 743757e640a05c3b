// Error answers in the format of OpenAI's API.
#pragma once

#include <string_view>

#include "halley/server/http/http_exchange.h"

namespace halley {

/// {"error": {"message", "type", "param": null, "code"}} with `type` by the status:
/// "rate_limit_error" for 429, "invalid_request_error" for others below 500 and for 501 and 505,
/// else "server_error". An empty `code` is null. `message` goes to the client: it must not
/// reveal internals. 401 has WWW-Authenticate.
HttpResponse http_error(int status, std::string_view message, std::string_view code = {});

}  // namespace halley
