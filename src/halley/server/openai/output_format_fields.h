// The rows of the table of fields that say what the output must be: JSON, a regular expression, a
// choice or a grammar, by the names that OpenAI, vLLM, SGLang and llama.cpp have for them.
#pragma once

#include <span>
#include <string>

#include "halley/server/openai/field_table.h"

namespace halley {

/// A request has one of them at most; their store functions throw ApiError for a second one.
std::span<const ApiField> output_format_fields();

/// The output is an object of the JSON schema, or any JSON object: for APIs that say so in another
/// field, which `path` names. Throws ApiError as the store functions do.
void store_schema_format(const OrderedJson& schema, const std::string& path, ApiRequest& request);
void store_object_format(const std::string& path, ApiRequest& request);

}  // namespace halley
