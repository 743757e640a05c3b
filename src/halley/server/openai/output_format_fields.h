// The rows of the table of fields that say what the output must be: JSON, a regular expression, a
// choice or a grammar, by the names that OpenAI, vLLM, SGLang and llama.cpp have for them.
#pragma once

#include <span>

#include "halley/server/openai/field_table.h"

namespace halley {

/// A request has one of them at most; their store functions throw ApiError for a second one.
std::span<const ApiField> output_format_fields();

}  // namespace halley
