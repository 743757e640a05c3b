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

/// A model's format of tool calls.
enum class ToolDialect : uint8_t {
  kNone,        // no calls: all text is content
  kHermes,      // <tool_call>{"name": ..., "arguments": {...}}</tool_call>; Qwen, Hermes
  kLlama3Json,  // {"name": ..., "parameters": {...}}, alone or after <|python_tag|>; Llama 3
  kMistral,     // [TOOL_CALLS][{"name": ..., "arguments": {...}}], [TOOL_CALLS]name{...}; Mistral
  kQwen3Coder,  // <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
  kGlm45,       // <tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>
  kKimiK2,      // <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}; Kimi K2
  kDeepseekV3,  // <｜tool▁call▁begin｜>, a name and JSON; DeepSeek R1, V3 and V3.1
  kHarmony,     // <|channel|>commentary to=functions.name<|message|>{...}<|call|>; gpt-oss
  kGranite,     // <|tool_call|>[{"name": ..., "arguments": {...}}]; Granite 3
  kLlama4Pythonic,  // [name(key=value, ...), ...], alone; Llama 4
  kJson,            // a call's object or a list of them, alone or in a block of Markdown
};

class ToolCallParser;

/// One dialect.
struct ToolDialectRow {
  ToolDialect dialect;
  const char* name;     // vLLM's
  bool is_enforceable;  // the constraint of a forced call has a grammar of it
  /// Null for kNone.
  std::unique_ptr<ToolCallParser> (*make)(std::span<const ApiTool> tools);
};
std::span<const ToolDialectRow> tool_dialects();

const char* name_of(ToolDialect dialect);
std::optional<ToolDialect> tool_dialect_from_name(std::string_view name);
bool is_enforceable(ToolDialect dialect);
/// Detects the dialect from a chat template; kNone if it does not mention tools.
ToolDialect detect_tool_dialect(std::string_view chat_template);

/// A call, or a piece of one: the first piece has a name, and those without one add to the
/// arguments of the call before.
struct ToolCall {
  std::string id = {};  // only with the name; empty: the server generates one
  std::string name;
  std::string arguments;  // JSON text of an object, as the model writes it
};

/// The content and the calls in a piece of text.
struct ToolOutput {
  std::string content;
  std::vector<ToolCall> calls;
};

/// Text that does not begin a call of one of the request's tools is content. It is held back only
/// as long as it may still become a call. Once it has a tool's name and the beginning of its
/// arguments it stays a call, whether or not the model completes it. The result does not depend on
/// the pieces. One parser per request; not thread-safe.
class ToolCallParser {
 public:
  virtual ~ToolCallParser() = default;
  virtual void push(std::string_view text, ToolOutput& output) = 0;
  /// To be called at the end of the text.
  virtual void finish(ToolOutput& output) = 0;
};

/// `tools` must outlive the parser. Not for kNone.
std::unique_ptr<ToolCallParser> make_tool_call_parser(ToolDialect dialect,
                                                      std::span<const ApiTool> tools);
/// For tool_choice required and named where the dialect is not is_enforceable(). The constraint
/// makes the whole output JSON: a list of calls, or the arguments of that tool.
std::unique_ptr<ToolCallParser> make_forced_call_parser(const ToolChoice& choice,
                                                        std::span<const ApiTool> tools);

/// Parses a call from an object's text; nothing if it is no call. Arguments may have the key
/// "arguments" or "parameters".
std::optional<ToolCall> parse_tool_call(std::string_view json, std::span<const ApiTool> tools);

}  // namespace halley
