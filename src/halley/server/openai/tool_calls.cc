#include "halley/server/openai/tool_calls.h"

#include <utility>

#include "halley/base/error.h"
#include "halley/server/openai/tool_call_reader.h"
#include "halley/server/openai/tool_call_text.h"

namespace halley {
namespace {

constexpr JsonLimits kCallLimits = {.depth_max = 64, .num_values_max = 1'000'000};

std::optional<ToolCall> call_of(const OrderedJson& json, std::span<const ApiTool> tools) {
  if (!json.is_object()) return std::nullopt;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return std::nullopt;
  ToolCall call{.name = name->get<std::string>(), .arguments = "{}"};
  if (!has_tool(tools, call.name)) return std::nullopt;
  for (const char* key : {"arguments", "parameters"}) {
    const auto arguments = json.find(key);
    if (arguments == json.end() || arguments->is_null()) continue;
    // Some models write the arguments as a string of JSON.
    const OrderedJson object = arguments->is_string()
                                   ? parse_json_or_null(arguments->get_ref<const std::string&>())
                                   : *arguments;
    if (!object.is_object()) return std::nullopt;
    call.arguments = object.dump();
    return call;
  }
  return call;
}

// The whole text is the arguments of one call.
class NamedParser : public ToolCallParser {
 public:
  explicit NamedParser(std::string name) : name_(std::move(name)) {}

  void push(std::string_view text, ToolOutput& output) override {
    if (text.empty()) return;
    if (!name_.empty()) output.calls.push_back({.name = std::exchange(name_, {}), .arguments = {}});
    add_arguments(text, output);
  }

  void finish(ToolOutput&) override {}

 private:
  std::string name_;  // until it was emitted
};

}  // namespace

bool has_tool(std::span<const ApiTool> tools, std::string_view name) {
  for (const ApiTool& tool : tools) {
    if (tool.name == name) return true;
  }
  return false;
}

OrderedJson parse_json_or_null(std::string_view text) {
  try {
    return parse_ordered_json(text, "tool call", kCallLimits);
  } catch (const InputError&) {
    return nullptr;
  }
}

std::optional<ToolCall> parse_tool_call(std::string_view json, std::span<const ApiTool> tools) {
  return call_of(parse_json_or_null(json), tools);
}

std::unique_ptr<ToolCallParser> make_forced_call_parser(const ToolChoice& choice,
                                                        std::span<const ApiTool> tools) {
  if (choice.kind == ToolChoice::Kind::kNamed) return std::make_unique<NamedParser>(choice.name);
  return make_list_parser(tools);
}

}  // namespace halley
