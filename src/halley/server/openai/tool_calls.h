// Tool calls in a model's text, found while it arrives.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halley/server/openai/api_request.h"

namespace halley {

/// How a model writes calls.
enum class ToolDialect : uint8_t {
  kNone,        // not at all: everything is content
  kHermes,      // <tool_call>{"name": ..., "arguments": {...}}</tool_call>; Qwen, Hermes
  kLlama3Json,  // {"name": ..., "parameters": {...}}, alone or behind <|python_tag|>; Llama 3
  kMistral,     // [TOOL_CALLS][{"name": ..., "arguments": {...}}], [TOOL_CALLS]name{...}; Mistral
};
const char* name_of(ToolDialect dialect);  // vLLM's names: "hermes", "llama3_json", "mistral"
std::optional<ToolDialect> tool_dialect_from_name(std::string_view name);
/// What a chat template shows of it; kNone where it has no sign of tools.
ToolDialect detect_tool_dialect(std::string_view chat_template);

/// A call, or a piece of one: the first piece has a name, and those without one add to the
/// arguments of the call before.
struct ToolCall {
  std::string id = {};  // made up by the server; with the name
  std::string name;
  std::string arguments;  // JSON text of an object, as the model writes it
};

/// What a piece of text was.
struct ToolOutput {
  std::string content;
  std::vector<ToolCall> calls;  // without ids
};

/// Text that does not begin a call of one of the request's tools is content, whatever it looks
/// like. Content is held back only as long as it may still become a call; what has become one, by
/// the name of a tool and the beginning of its arguments, stays one, whether or not the model
/// completes it. How the text was cut into pieces makes no difference. One request's; not
/// thread-safe.
class ToolCallParser {
 public:
  virtual ~ToolCallParser() = default;
  virtual void push(std::string_view text, ToolOutput& output) = 0;
  /// The text has ended.
  virtual void finish(ToolOutput& output) = 0;
};

/// `tools` must outlive the parser. Not for kNone.
std::unique_ptr<ToolCallParser> make_tool_call_parser(ToolDialect dialect,
                                                      std::span<const ApiTool> tools);
/// For tool_choice required and named with a model without a dialect, where the whole output is
/// JSON by force: a list of calls, or the arguments of that tool.
std::unique_ptr<ToolCallParser> make_forced_call_parser(const ToolChoice& choice,
                                                        std::span<const ApiTool> tools);

/// The call that an object's text states; nothing where it is none. Arguments may stand below
/// "arguments" or "parameters".
std::optional<ToolCall> parse_tool_call(std::string_view json, std::span<const ApiTool> tools);

}  // namespace halley
