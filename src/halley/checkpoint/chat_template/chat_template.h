// Chat templates: a sandboxed interpreter for the part of Jinja 3.1 that published templates use,
// with the settings of transformers (trim_blocks, lstrip_blocks, loop controls, tojson without
// ASCII escapes, raise_exception, strftime_now).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "halley/checkpoint/chat_template/template_limits.h"
#include "halley/json/json.h"

namespace halley {

/// A parsed template. Immutable; rendering is safe from any thread.
class ChatTemplate {
 public:
  /// Throws InputError "<where>:<line>: ..." on a syntax error or on Jinja that is not supported.
  ChatTemplate(std::string_view source, const std::string& where,
               const TemplateLimits& limits = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// Renders with the members of the object `context` as variables. Throws InputError where the
  /// template raises (raise_exception's message is kept), refers wrongly or exceeds a limit.
  std::string render(const OrderedJson& context) const;

  /// The clock that strftime_now reads, for tests: local time now unless set.
  using Clock = TemplateClock;
  void set_clock(Clock clock);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// The template of a model: `chat_template.jinja`, else `chat_template` of tokenizer_config.json
/// (a string, or a list of named ones, of which "default" is taken, and "tool_use" where
/// `has_tools` is set and it exists). Nothing where the model has none.
std::optional<std::string> load_chat_template_source(const std::filesystem::path& model_dir,
                                                     bool has_tools);

/// bos_token, eos_token, unk_token and pad_token of tokenizer_config.json, as templates expect them
/// in their context: an object of strings.
OrderedJson load_special_token_context(const std::filesystem::path& model_dir);

}  // namespace halley
