#include "halley/cli/chat_prompt.h"

#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley::cli {

ChatPrompt::ChatPrompt(const std::string& model, const std::string& asked_by,
                       std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {
  const auto source = load_chat_template_source(model, /*has_tools=*/false);
  if (!source) {
    throw InputError(str(model, ": ", asked_by,
                         ": expected a chat template (chat_template.jinja, or "
                         "chat_template in tokenizer_config.json), got none. Use 'halley generate' "
                         "with --prompt alone."));
  }
  template_ = std::make_unique<ChatTemplate>(*source, model);
  defaults_ = load_special_token_context(model);
}

std::vector<int32_t> ChatPrompt::ids(const OrderedJson& messages) const {
  OrderedJson context = defaults_;
  context["messages"] = messages;
  context["add_generation_prompt"] = true;
  // The template writes the special tokens itself.
  return tokenizer_->encode(template_->render(context), false);
}

}  // namespace halley::cli
