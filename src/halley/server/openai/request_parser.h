// From the body of a request to an ApiRequest, by the table of fields.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "halley/server/openai/api_request.h"

namespace halley {

/// What the server, not the client, says of requests.
struct RequestRules {
  SamplingParams sampling = {};  // defaults: the model's, where its generation_config.json has them
  int64_t vocab_size = 0;        // token ids must be below
  bool ignores_unknown_fields = false;  // else 400
};

/// `body` is untrusted. A field that is null is as if it were not there. Throws ApiError 400 with
/// the field's name in `param`.
ApiRequest parse_request(std::string_view body, ApiEndpoint endpoint, const RequestRules& rules);

}  // namespace halley
