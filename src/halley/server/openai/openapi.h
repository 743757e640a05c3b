// Generates the OpenAPI description from the table of fields.
#pragma once

#include <string>

#include "halley/json/json.h"

namespace halley {

/// An OpenAPI 3.1 document of all routes of the server (server/app). `version` is the program's.
OrderedJson make_openapi(const std::string& version);

}  // namespace halley
