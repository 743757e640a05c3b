// Generates the OpenAPI description from the tables of fields.
#pragma once

#include <span>
#include <string>

#include "halley/json/json.h"
#include "halley/server/openai/field_table.h"
#include "halley/server/openai/openapi_answers.h"

namespace halley {

struct ApiOperation {
  const char* method;
  const char* path;  // "/v1/responses/{response_id}" takes a name
  const char* summary;
  const char* request = nullptr;  // a schema's name; null: no body
  bool has_stream = false;
  bool is_open = false;
  const char* answer = nullptr;  // the schema of a whole answer, by name; null: it is no JSON
};

/// The routes of an API with tables of its own, and the schema of their bodies.
struct ApiDescription {
  std::span<const ApiOperation> operations;
  const char* schema;
  FieldTables tables;
  ApiEndpoint endpoint = ApiEndpoint::kChat;  // its rows of the tables
  std::span<const AnswerSchema> answers = {};
};

/// An OpenAPI 3.1 document of all routes of the server (server/app), those of `others` among them.
/// `version` is the program's.
OrderedJson make_openapi(const std::string& version, std::span<const ApiDescription> others);

}  // namespace halley
