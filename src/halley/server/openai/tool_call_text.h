// Functions that the parsers of tool calls share.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "halley/server/openai/text_marker.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

inline constexpr std::string_view kHermesOpen = "<tool_call>";
inline constexpr std::string_view kHermesClose = "</tool_call>";
inline constexpr std::string_view kMistralOpen = "[TOOL_CALLS]";
inline constexpr std::string_view kGraniteOpen = "<|tool_call|>";
inline constexpr std::string_view kPythonTag = "<|python_tag|>";

/// The text that a parser holds back because a call may begin with it.
struct HeldText {
  struct Content {
    size_t num_taken;         // bytes of the new text
    std::string_view marker;  // the last held bytes; empty: none was found
  };

  /// Takes new text up to the end of the first marker. Emits what is certainly content, and holds
  /// white space before a marker, the marker, or what may become one.
  Content take_content(std::string_view new_text, std::span<const std::string_view> markers,
                       ToolOutput& output);
  /// Says that all held text stands before the call's own.
  void mark_opening() { num_opening = text.size(); }
  /// The text behind the opening, without white space at its beginning.
  std::string_view behind_opening() const { return behind(num_opening); }
  std::string_view behind(size_t start) const;
  /// Emits the opening as content and returns the rest, which may hold another marker.
  std::string give_up(ToolOutput& output);

  std::string text;
  size_t num_opening = 0;  // bytes up to the end of the last marker
};

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
