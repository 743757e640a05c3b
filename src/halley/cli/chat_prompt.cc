#include "halley/cli/chat_prompt.h"

#include <utility>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"

namespace halley::cli {

void add_chat_template_option(CLI::App& app, std::string& template_file) {
  app.add_option("--chat-template", template_file,
                 "A Jinja template file instead of the model's own");
}

ChatPrompt::ChatPrompt(const std::string& model, const std::string& template_file,
                       const std::string& asked_by, std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)), defaults_(load_special_token_context(model)) {
  if (!template_file.empty()) {
    template_ = std::make_unique<ChatTemplate>(
        read_text_file(template_file, TemplateLimits{}.source_bytes_max), template_file);
    return;
  }
  const auto source = load_chat_template_source(model, /*has_tools=*/false);
  if (!source) {
    throw InputError(str(model, ": ", asked_by,
                         ": expected a chat template (chat_template.jinja, or "
                         "chat_template in tokenizer_config.json), got none. Use --chat-template, "
                         "or 'halley generate' with --prompt alone."));
  }
  template_ = std::make_unique<ChatTemplate>(*source, model);
}

std::vector<int32_t> ChatPrompt::ids(const OrderedJson& messages) const {
  OrderedJson context = defaults_;
  context["messages"] = messages;
  context["add_generation_prompt"] = true;
  // The template writes the special tokens itself.
  return tokenizer_->encode(template_->render(context), false);
}

}  // namespace halley::cli
