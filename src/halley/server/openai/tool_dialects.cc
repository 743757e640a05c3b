// The table of dialects of tool calls, and how a chat template shows its own.
#include <algorithm>
#include <array>

#include "halley/base/check.h"
#include "halley/server/openai/harmony.h"
#include "halley/server/openai/tool_call_text.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {
namespace {

constexpr auto kDialects = std::to_array<ToolDialectRow>({
    {ToolDialect::kHermes, "hermes", true, make_hermes_parser},
    {ToolDialect::kLlama3Json, "llama3_json", true, make_llama_parser},
    {ToolDialect::kMistral, "mistral", true, make_mistral_parser},
    {ToolDialect::kQwen3Coder, "qwen3_coder", false, make_qwen_coder_parser},
    {ToolDialect::kGlm45, "glm45", false, make_glm_parser},
    {ToolDialect::kKimiK2, "kimi_k2", false, make_kimi_parser},
    {ToolDialect::kDeepseekV3, "deepseek_v3", false, make_deepseek_parser},
    {ToolDialect::kHarmony, "openai", false, make_harmony_tool_parser},
    {ToolDialect::kGranite, "granite", false, make_granite_parser},
    {ToolDialect::kLlama4Pythonic, "llama4_pythonic", false, make_pythonic_parser},
    {ToolDialect::kJson, "json", false, make_json_parser},
    {ToolDialect::kNone, "none", false, nullptr},
});

/// All marks of a row stand in the templates of its dialect. The first row that fits counts.
struct TemplateMarks {
  ToolDialect dialect;
  std::array<std::string_view, 2> marks;
};
constexpr auto kTemplateMarks = std::to_array<TemplateMarks>({
    {ToolDialect::kHarmony, {kHarmonyChannel, "functions"}},
    {ToolDialect::kQwen3Coder, {"<function=", "<parameter="}},
    {ToolDialect::kGlm45, {"<arg_key>"}},
    {ToolDialect::kKimiK2, {"<|tool_call_begin|>"}},
    {ToolDialect::kDeepseekV3, {"<｜tool▁call▁begin｜>"}},
    {ToolDialect::kGranite, {kGraniteOpen}},
    {ToolDialect::kHermes, {kHermesOpen}},
    {ToolDialect::kMistral, {kMistralOpen}},
    {ToolDialect::kLlama4Pythonic, {"[func_name1("}},
    // Llama's templates contain the tag, or describe a call's "parameters" in words.
    {ToolDialect::kLlama3Json, {kPythonTag}},
    {ToolDialect::kLlama3Json, {"<|start_header_id|>", "\"parameters\":"}},
});

const ToolDialectRow& row_of(ToolDialect dialect) {
  const auto row = std::find_if(kDialects.begin(), kDialects.end(),
                                [&](const auto& one) { return one.dialect == dialect; });
  HALLEY_CHECK(row != kDialects.end(), static_cast<int>(dialect));
  return *row;
}

}  // namespace

std::span<const ToolDialectRow> tool_dialects() { return kDialects; }

const char* name_of(ToolDialect dialect) { return row_of(dialect).name; }
bool is_enforceable(ToolDialect dialect) { return row_of(dialect).is_enforceable; }

std::optional<ToolDialect> tool_dialect_from_name(std::string_view name) {
  for (const ToolDialectRow& row : kDialects) {
    if (name == row.name) return row.dialect;
  }
  return std::nullopt;
}

ToolDialect detect_tool_dialect(std::string_view chat_template) {
  for (const auto& [dialect, marks] : kTemplateMarks) {
    const bool has_all = std::all_of(marks.begin(), marks.end(), [&](std::string_view mark) {
      return chat_template.find(mark) != std::string_view::npos;
    });
    if (has_all) return dialect;
  }
  return ToolDialect::kNone;
}

std::unique_ptr<ToolCallParser> make_tool_call_parser(ToolDialect dialect,
                                                      std::span<const ApiTool> tools) {
  HALLEY_CHECK(dialect != ToolDialect::kNone);
  return row_of(dialect).make(tools);
}

}  // namespace halley
