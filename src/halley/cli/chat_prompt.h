// From a conversation to the token ids that a model continues.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "halley/checkpoint/chat_template/chat_template.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/json/json.h"

namespace halley::cli {

/// --chat-template.
void add_chat_template_option(CLI::App& app, std::string& template_file);

class ChatPrompt {
 public:
  /// Reads the chat template of a model's directory, or `template_file` if that is not empty.
  /// `asked_by` names the option or command in messages. Throws InputError if there is no template.
  ChatPrompt(const std::string& model, const std::string& template_file,
             const std::string& asked_by, std::shared_ptr<const Tokenizer> tokenizer);

  /// The prompt of `messages`, an array of {role, content}, up to the beginning of the answer.
  /// Throws InputError if the template rejects them.
  std::vector<int32_t> ids(const OrderedJson& messages) const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  OrderedJson defaults_;
};

}  // namespace halley::cli
