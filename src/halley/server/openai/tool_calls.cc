#include "halley/server/openai/tool_calls.h"

#include <utility>

#include "halley/base/check.h"
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

const char* name_of(ToolDialect dialect) {
  switch (dialect) {
    case ToolDialect::kNone:
      return "none";
    case ToolDialect::kHermes:
      return "hermes";
    case ToolDialect::kLlama3Json:
      return "llama3_json";
    case ToolDialect::kMistral:
      return "mistral";
  }
  return "?";
}

std::optional<ToolDialect> tool_dialect_from_name(std::string_view name) {
  for (const ToolDialect dialect : {ToolDialect::kNone, ToolDialect::kHermes,
                                    ToolDialect::kLlama3Json, ToolDialect::kMistral}) {
    if (name == name_of(dialect)) return dialect;
  }
  return std::nullopt;
}

ToolDialect detect_tool_dialect(std::string_view chat_template) {
  const auto has = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  if (has(kHermesOpen)) return ToolDialect::kHermes;
  if (has(kMistralOpen)) return ToolDialect::kMistral;
  // Llama's templates contain the tag, or describe a call's "parameters" in words.
  if (has(kPythonTag) || (has("<|start_header_id|>") && has("\"parameters\":"))) {
    return ToolDialect::kLlama3Json;
  }
  return ToolDialect::kNone;
}

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

size_t num_leading_spaces(std::string_view text) {
  const size_t n = text.find_first_not_of(" \t\r\n");
  return n == std::string_view::npos ? text.size() : n;
}

std::optional<ToolCall> parse_tool_call(std::string_view json, std::span<const ApiTool> tools) {
  return call_of(parse_json_or_null(json), tools);
}

std::unique_ptr<ToolCallParser> make_tool_call_parser(ToolDialect dialect,
                                                      std::span<const ApiTool> tools) {
  HALLEY_CHECK(dialect != ToolDialect::kNone);
  if (dialect == ToolDialect::kHermes) return make_hermes_parser(tools);
  if (dialect == ToolDialect::kMistral) return make_mistral_parser(tools);
  return make_llama_parser(tools);
}

std::unique_ptr<ToolCallParser> make_forced_call_parser(const ToolChoice& choice,
                                                        std::span<const ApiTool> tools) {
  if (choice.kind == ToolChoice::Kind::kNamed) return std::make_unique<NamedParser>(choice.name);
  return make_list_parser(tools);
}

}  // namespace halley
