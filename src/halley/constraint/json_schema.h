// JSON Schema (draft 2020-12, the part that structured output uses) to a grammar of the values that
// fulfil it. docs/structured_output.md says what is done; what would change the meaning of a schema
// and is not done is rejected with its place, never left out.
#pragma once

#include <string>

#include "halley/constraint/grammar.h"
#include "halley/json/json.h"

namespace halley {

struct JsonSchemaLimits {
  int depth_max = 64;  // of subschemas inside each other
};

/// The values of `schema`; members of objects stand in the order of "properties". `where` begins
/// messages, which go on with the place as a JSON pointer:
/// "response_format.json_schema.schema#/properties/a: ...". Throws InputError for what is no
/// schema, UnsupportedError for what is not done.
ExprId json_schema_values(GrammarBuilder& builder, const OrderedJson& schema,
                          const std::string& where);

/// The grammar of these values alone.
Grammar json_schema_grammar(const OrderedJson& schema, const std::string& where);

/// The grammar of all objects: "json_object" of OpenAI.
Grammar json_object_grammar();

}  // namespace halley
