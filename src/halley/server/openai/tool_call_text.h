// Functions that the parsers of tool calls share.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "halley/server/openai/text_marker.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

inline constexpr std::string_view kHermesOpen = "<tool_call>";
inline constexpr std::string_view kHermesClose = "</tool_call>";
inline constexpr std::string_view kMistralOpen = "[TOOL_CALLS]";
inline constexpr std::string_view kGraniteOpen = "<|tool_call|>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";

/// The text's JSON value, or null.
OrderedJson parse_json_or_null(std::string_view text);
bool has_tool(std::span<const ApiTool> tools, std::string_view name);

std::unique_ptr<ToolCallParser> make_hermes_parser(std::span<const ApiTool> tools);
std::unique_ptr<ToolCallParser> make_mistral_parser(std::span<const ApiTool> tools);
std::unique_ptr<ToolCallParser> make_granite_parser(std::span<const ApiTool> tools);
std::unique_ptr<ToolCallParser> make_llama_parser(std::span<const ApiTool> tools);
std::unique_ptr<ToolCallParser> make_json_parser(std::span<const ApiTool> tools);
std::unique_ptr<ToolCallParser> make_kimi_parser(std::span<const ApiTool> tools);
std::unique_ptr<ToolCallParser> make_deepseek_parser(std::span<const ApiTool> tools);
std::unique_ptr<ToolCallParser> make_harmony_tool_parser(std::span<const ApiTool> tools);
std::unique_ptr<ToolCallParser> make_qwen_coder_parser(std::span<const ApiTool> tools);
std::unique_ptr<ToolCallParser> make_glm_parser(std::span<const ApiTool> tools);
std::unique_ptr<ToolCallParser> make_pythonic_parser(std::span<const ApiTool> tools);
/// The whole answer is a list of calls, without a marker.
std::unique_ptr<ToolCallParser> make_list_parser(std::span<const ApiTool> tools);

}  // namespace halley
