// Renders a conversation to the text that the model continues.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "halley/checkpoint/chat_template/chat_template.h"
#include "halley/json/json.h"
#include "halley/server/openai/api_request.h"
#include "halley/server/openai/tool_calls.h"

namespace halley {

/// The templates of one model. Immutable; any thread.
class ChatFormat {
 public:
  /// A model without a template: chats are rejected.
  ChatFormat() = default;
  /// `special_tokens` as load_special_token_context() gives them. `dialect`: the model's format of
  /// tool calls; absent: detected from the template for tools. Throws InputError as ChatTemplate
  /// does.
  ChatFormat(const std::string& source, const std::string& source_with_tools,
             OrderedJson special_tokens, std::optional<ToolDialect> dialect);

  bool has_template() const { return plain_.has_value(); }
  ToolDialect dialect() const { return dialect_; }
  /// Whether a template reads the variable `reasoning_effort`.
  bool reads_reasoning_effort() const { return reads_reasoning_effort_; }

  /// Throws ApiError 400 if there is no template, if it raises an error, or if the request has
  /// tools and the model has no dialect.
  std::string render(const ApiRequest& request) const;

 private:
  std::optional<ChatTemplate> plain_, with_tools_;
  OrderedJson special_tokens_;
  ToolDialect dialect_ = ToolDialect::kNone;
  bool reads_reasoning_effort_ = false;
};

/// Reads the templates of a model's directory; `template_file`, if not empty, replaces the model's
/// own. A model without a template is no error.
ChatFormat load_chat_format(const std::filesystem::path& model_dir,
                            const std::filesystem::path& template_file,
                            std::optional<ToolDialect> dialect);

}  // namespace halley
