// From a conversation to the text that the model continues.
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
  /// `special_tokens` as load_special_token_context() gives them. `dialect`: how the model writes
  /// tool calls; absent: what the template for tools shows. Throws InputError as ChatTemplate does.
  ChatFormat(const std::string& source, const std::string& source_with_tools,
             OrderedJson special_tokens, std::optional<ToolDialect> dialect);

  bool has_template() const { return plain_.has_value(); }
  ToolDialect dialect() const { return dialect_; }

  /// Throws ApiError 400 where there is no template, where it raises or where the request asks for
  /// tools and the model has no dialect.
  std::string render(const ApiRequest& request) const;

 private:
  std::optional<ChatTemplate> plain_, with_tools_;
  OrderedJson special_tokens_;
  ToolDialect dialect_ = ToolDialect::kNone;
};

/// Of a model's directory; `template_file` instead of the model's own where it is not empty. A
/// model without one is no error.
ChatFormat load_chat_format(const std::filesystem::path& model_dir,
                            const std::filesystem::path& template_file,
                            std::optional<ToolDialect> dialect);

}  // namespace halley
