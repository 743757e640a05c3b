// The schemas of whole answers, for openapi.json.
#pragma once

#include <span>

namespace halley {

struct AnswerSchema {
  const char* name;
  const char* json;  // a JSON schema; it may refer to others as "#/components/schemas/NAME"
};

/// Those of the OpenAI routes, and of the server's own.
std::span<const AnswerSchema> openai_answers();

}  // namespace halley
