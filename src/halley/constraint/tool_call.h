// Outputs that are tool calls and nothing else, in the forms that model families were trained on:
// for "tool_choice" that is "required" or names a function.
#pragma once

#include <span>
#include <string>

#include "halley/constraint/grammar.h"
#include "halley/json/json.h"

namespace halley {

enum class ToolCallForm {
  kLlama3,  // {"name": "f", "parameters": {...}}: Llama 3.1 and later; one call
  kHermes,  // <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>: Hermes, Qwen 2.5 and 3
};

struct ToolSignature {
  std::string name;
  /// JSON Schema of the arguments; null (the JSON value) for any object.
  OrderedJson parameters;
  /// Begins messages about `parameters`: "tools[0].function.parameters".
  std::string where;
};

/// Limits of OpenAI.
constexpr size_t kToolsMax = 128;
constexpr size_t kToolNameBytesMax = 64;
/// Calls of one output, where several are allowed; kHermes alone has several.
constexpr int32_t kParallelToolCallsMax = 16;

/// At least one call of one of `tools`. With `may_have_several`, calls stand behind each other with
/// a line end between them. Throws InputError where there is no tool, where there are too many or a
/// name is no name, and as json_schema_values().
Grammar tool_call_grammar(std::span<const ToolSignature> tools, ToolCallForm form,
                          bool may_have_several);

}  // namespace halley
