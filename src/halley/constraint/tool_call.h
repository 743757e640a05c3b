// Grammars of outputs that are only tool calls, in the formats that model families were trained on,
// for a "tool_choice" that is "required" or names a function.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halley/constraint/grammar.h"
#include "halley/json/json.h"

namespace halley {

enum class ToolCallForm {
  kLlama3,   // {"name": "f", "parameters": {...}}: Llama 3.1 and later; one call
  kHermes,   // <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>: Hermes, Qwen 2.5 and 3
  kMistral,  // [TOOL_CALLS][{"name": "f", "arguments": {...}}]: Mistral
};

/// The markers of all formats.
inline constexpr std::array<std::string_view, 3> kToolCallMarks = {"<tool_call>", "</tool_call>",
                                                                   "[TOOL_CALLS]"};

struct ToolSignature {
  std::string name;
  /// JSON Schema of the arguments; null (the JSON value) for any object.
  OrderedJson parameters;
  /// Begins messages about `parameters`: "tools[0].function.parameters".
  std::string where;
};

struct ToolCallStyle {
  ToolCallForm form = ToolCallForm::kHermes;
  /// Allows several calls; not with kLlama3.
  bool may_have_several = false;
  /// Markers that are special tokens, which TokenTrie::from_tokenizer must know; other markers are
  /// text.
  std::vector<std::string> special_marks = {};
};

/// OpenAI's limits.
constexpr size_t kToolsMax = 128;
constexpr size_t kToolNameBytesMax = 64;
/// The most calls of one output, if several are allowed.
constexpr int32_t kParallelToolCallsMax = 16;

/// At least one call of one of `tools`. Several have a line end (kHermes) or a comma (kMistral)
/// between them. Throws InputError if there is no tool, where there are too many or a name is no
/// name, and as json_schema_values().
Grammar tool_call_grammar(std::span<const ToolSignature> tools, const ToolCallStyle& style);

}  // namespace halley
