// The page at "/": a chat with the served model, and the server's state. The page at "/docs": the
// routes of /openapi.json.
#pragma once

#include <vector>

#include "halley/server/http/http_exchange.h"

namespace halley {

/// "/", "/docs" and the files that they load, embedded in the program. They need no API key, since
/// they contain no data of the model or its users. The pages' own requests (/v1/models,
/// /v1/chat/completions, /metrics, /openapi.json) need one if keys are set, and the pages have a
/// field for it.
std::vector<HttpRoute> page_routes();

}  // namespace halley
