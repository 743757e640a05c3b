// The page at "/": a chat with the served model, and the server's state.
#pragma once

#include <vector>

#include "halley/server/http/http_exchange.h"

namespace halley {

/// "/" and the files that it loads, embedded in the program. They need no API key, since they
/// contain no data of the model or its users. The page's own requests (/v1/models,
/// /v1/chat/completions, /metrics) need one if keys are set, and the page has a field for it.
std::vector<HttpRoute> page_routes();

}  // namespace halley
