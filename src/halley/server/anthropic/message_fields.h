// The fields of POST /v1/messages and POST /v1/messages/count_tokens.
#pragma once

#include <string_view>

#include "halley/server/openai/api_request.h"
#include "halley/server/openai/field_table.h"
#include "halley/server/openai/openapi.h"
#include "halley/server/openai/request_parser.h"

namespace halley {

FieldTables message_tables();
ApiDescription message_description();

/// `endpoint`: kChat, or kTokenize to count the tokens of the prompt. `body` is untrusted. Throws
/// ApiError 400 with the field's name in `param`.
ApiRequest parse_message_request(std::string_view body, ApiEndpoint endpoint,
                                 const RequestRules& rules);

}  // namespace halley
