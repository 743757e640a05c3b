#include "halley/server/app/chat_format.h"

#include <utility>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/server/openai/api_error.h"
#include "halley/server/openai/api_id.h"

namespace halley {
namespace {

// A random marker, which no template can contain.
const std::string& end_mark() {
  static const std::string kMark = random_id("END-OF-FINAL-MESSAGE-", 16);
  return kMark;
}

OrderedJson messages_of(const ApiRequest& request) {
  OrderedJson messages = request.messages;
  for (OrderedJson& message : messages) {
    if (message["role"] == "developer") message["role"] = "system";
  }
  if (request.continues_final_message) {
    OrderedJson& content = messages.back()["content"];
    content = content.get<std::string>() + end_mark();
  }
  return messages;
}

bool uses_tools(const ApiRequest& request) {
  const bool is_none = request.tool_choice && request.tool_choice->kind == ToolChoice::Kind::kNone;
  return !request.tools_json.is_null() && !is_none;
}

// Cuts `text` after the text of the last message.
std::string cut_at_mark(const std::string& text) {
  const size_t end = text.rfind(end_mark());
  if (end == std::string::npos) {
    throw invalid_field("continue_final_message",
                        "continue_final_message: expected a chat template that writes the last "
                        "message's content as it is; this model's does not.");
  }
  return text.substr(0, end);
}

[[noreturn]] void reject_parser(const char* option, const std::vector<std::string>& names,
                                const std::string& got) {
  std::string expected;
  for (const std::string& name : names) {
    if (!expected.empty()) expected += name == names.back() ? " or " : ", ";
    expected += name;
  }
  throw InputError(str(option, ": expected ", expected, ", got ", quote(got), "."));
}

ToolDialect tool_dialect_of(const std::string& name, const std::string& source) {
  if (name == "auto") return detect_tool_dialect(source);
  const auto dialect = tool_dialect_from_name(name);
  if (!dialect) reject_parser("tool_call_parser", tool_parser_names(), name);
  return *dialect;
}

const ReasoningDialect* reasoning_dialect_of(const std::string& name, const std::string& source) {
  if (name == "auto") return detect_reasoning_dialect(source);
  const ReasoningDialect* dialect = find_reasoning_dialect(name);
  if (dialect == nullptr && name != "none") {
    reject_parser("reasoning_parser", reasoning_parser_names(), name);
  }
  return dialect;
}

}  // namespace

std::vector<std::string> tool_parser_names() {
  std::vector<std::string> names = {"auto"};
  for (const ToolDialectRow& row : tool_dialects()) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> reasoning_parser_names() {
  std::vector<std::string> names = {"auto"};
  for (const ReasoningDialect& dialect : reasoning_dialects()) names.emplace_back(dialect.name);
  names.emplace_back("none");
  return names;
}

ChatFormat::ChatFormat(const std::string& source, const std::string& source_with_tools,
                       OrderedJson special_tokens, const AnswerParsers& parsers)
    : source_(source),
      plain_(std::in_place, source, "chat template"),
      with_tools_(std::in_place, source_with_tools, "chat template"),
      special_tokens_(std::move(special_tokens)),
      dialect_(tool_dialect_of(parsers.tool_calls, source_with_tools)),
      reasoning_(reasoning_dialect_of(parsers.reasoning, source_with_tools)) {
  const auto reads = [&](const char* variable) {
    return source.find(variable) != std::string::npos ||
           source_with_tools.find(variable) != std::string::npos;
  };
  reads_effort_ = reads("reasoning_effort");
  reads_enable_thinking_ = reads("enable_thinking");
}

void ChatFormat::set_rules(RequestRules& rules) const {
  rules.template_reads_effort = reads_effort_;
  rules.template_reads_enable_thinking = reads_enable_thinking_;
  rules.has_reasoning_parser = reasoning_ != nullptr;
}

std::string ChatFormat::render(const ApiRequest& request) const {
  if (!has_template()) {
    throw invalid_field("messages",
                        "messages: expected a model with a chat template, which this one lacks. "
                        "Use /v1/completions, or start the server with --chat-template.");
  }
  const bool has_tools = uses_tools(request);
  const bool is_auto = request.tool_choice && request.tool_choice->kind == ToolChoice::Kind::kAuto;
  if (has_tools && is_auto && dialect_ == ToolDialect::kNone) {
    throw invalid_field("tools",
                        "tools: expected a model whose chat template shows how it calls tools, "
                        "which this one's does not. Start the server with --tool-call-parser and "
                        "--chat-template, or send tool_choice \"none\".");
  }
  OrderedJson context = special_tokens_;
  context["messages"] = messages_of(request);
  context["tools"] = has_tools ? request.tools_json : OrderedJson();
  context["add_generation_prompt"] = request.adds_generation_prompt;
  for (const auto& [name, value] : request.template_kwargs.items()) context[name] = value;
  try {
    const std::string text = (has_tools ? *with_tools_ : *plain_).render(context);
    return request.continues_final_message ? cut_at_mark(text) : text;
  } catch (const ApiError&) {
    throw;
  } catch (const InputError& error) {
    throw invalid_field("messages",
                        str("messages: the chat template rejected them: ", error.what()));
  }
}

ChatFormat load_chat_format(const std::filesystem::path& model_dir,
                            const std::filesystem::path& template_file,
                            const AnswerParsers& parsers) {
  OrderedJson special_tokens = load_special_token_context(model_dir);
  if (!template_file.empty()) {
    const std::string source = read_text_file(template_file, TemplateLimits{}.source_bytes_max);
    return {source, source, std::move(special_tokens), parsers};
  }
  const auto plain = load_chat_template_source(model_dir, /*has_tools=*/false);
  if (!plain) return {};
  const auto with_tools = load_chat_template_source(model_dir, /*has_tools=*/true);
  return {*plain, with_tools.value_or(*plain), std::move(special_tokens), parsers};
}

}  // namespace halley
