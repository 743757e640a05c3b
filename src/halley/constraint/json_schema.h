// JSON Schema (draft 2020-12, the part that structured output uses) to a grammar of the values that
// fulfil it. docs/structured_output.md lists the supported keywords. An unsupported keyword that
// would change the meaning of a schema is rejected with its JSON pointer, never ignored.
#pragma once

#include <string>

#include "halley/constraint/grammar.h"
#include "halley/json/json.h"

namespace halley {

struct JsonSchemaLimits {
  int depth_max = 64;  // nesting of subschemas
};

/// The values of `schema`; members of objects have the order of "properties". Messages begin with
/// `where` and a JSON pointer: "response_format.json_schema.schema#/properties/a: ...". Throws
/// InputError for an invalid schema, UnsupportedError for an unsupported one.
ExprId json_schema_values(GrammarBuilder& builder, const OrderedJson& schema,
                          const std::string& where);

/// The grammar of these values, as whole texts.
Grammar json_schema_grammar(const OrderedJson& schema, const std::string& where);

/// The grammar of all objects: "json_object" of OpenAI.
Grammar json_object_grammar();

}  // namespace halley
