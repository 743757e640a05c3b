// The fields of POST /v1/responses.
#pragma once

#include <string_view>

#include "halley/server/openai/field_table.h"
#include "halley/server/openai/openapi.h"
#include "halley/server/openai/request_parser.h"
#include "halley/server/responses/response_request.h"

namespace halley {

FieldTables response_tables();
/// Describes them, and the routes of stored responses.
ApiDescription response_description();

/// `body` is untrusted. Throws ApiError 400 with the field's name in `param`.
ResponseRequest parse_response_request(std::string_view body, const RequestRules& rules);

}  // namespace halley
