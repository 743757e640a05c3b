// Renders a conversation to the text that the model continues.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "halley/checkpoint/chat_template/chat_template.h"
#include "halley/json/json.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/reasoning.h"
#include "halley/server/openai/request_parser.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

/// The parsers of a model's answers, by name: "auto" detects them from the chat template, "none" is
/// no parser. Checked where a ChatFormat is made.
struct AnswerParsers {
  std::string tool_calls = "auto";
  std::string reasoning = "auto";
};

/// The names that AnswerParsers may have, "auto" first.
std::vector<std::string> tool_parser_names();
std::vector<std::string> reasoning_parser_names();

/// The templates of one model. Immutable; any thread.
class ChatFormat {
 public:
  /// A model without a template: chats are rejected.
  ChatFormat() = default;
  /// `special_tokens` as load_special_token_context() gives them. Throws InputError as ChatTemplate
  /// does, and for a parser's name that is none.
  ChatFormat(const std::string& source, const std::string& source_with_tools,
             OrderedJson special_tokens, const AnswerParsers& parsers);

  /// The template of conversations without tools; empty: there is none.
  const std::string& source() const { return source_; }
  bool has_template() const { return plain_.has_value(); }
  ToolDialect dialect() const { return dialect_; }
  /// The model's format of reasoning; null: none is looked for.
  const ReasoningDialect* reasoning() const { return reasoning_; }
  /// The settings of request fields that depend on the templates.
  void set_rules(RequestRules& rules) const;

  /// Throws ApiError 400 if there is no template, if it raises an error, or if the request has
  /// tools and the model has no dialect.
  std::string render(const ApiRequest& request) const;

 private:
  std::string source_;
  std::optional<ChatTemplate> plain_, with_tools_;
  OrderedJson special_tokens_;
  bool reads_effort_ = false, reads_enable_thinking_ = false;
  ToolDialect dialect_ = ToolDialect::kNone;
  const ReasoningDialect* reasoning_ = nullptr;
};

/// Reads the templates of a model's directory; `template_file`, if not empty, replaces the model's
/// own. A model without a template is no error.
ChatFormat load_chat_format(const std::filesystem::path& model_dir,
                            const std::filesystem::path& template_file,
                            const AnswerParsers& parsers);

}  // namespace halley
