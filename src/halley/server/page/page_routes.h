// The page at "/": a chat with the served model and what the server is doing.
#pragma once

#include <vector>

#include "halley/server/http/http_exchange.h"

namespace halley {

/// "/" and what it loads, all of it out of the program. Open without a key, since they hold nothing
/// of the model or its users; what the page asks for (/v1/models, /v1/chat/completions, /metrics)
/// needs one where keys are set, and the page has a field for it.
std::vector<HttpRoute> page_routes();

}  // namespace halley
