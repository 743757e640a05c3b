// `halley template`: renders a chat template for each JSON context, one per line.
#include <iostream>
#include <memory>
#include <string>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/chat_template/chat_template.h"
#include "halley/cli/command.h"
#include "halley/cli/json_lines.h"
#include "halley/cli/named_model.h"
#include "halley/hub/pull.h"

namespace halley::cli {
namespace {

struct TemplateOptions {
  std::string model;
  hub::LookupOptions lookup;
  std::string file;
};

// A model may have its own template for requests with tools.
struct Templates {
  ChatTemplate plain;
  ChatTemplate with_tools;
};

ChatTemplate load_template(const TemplateOptions& options, bool has_tools) {
  if (!options.file.empty()) {
    return {read_text_file(options.file, TemplateLimits{}.source_bytes_max), options.file};
  }
  const auto source = load_chat_template_source(options.model, has_tools);
  if (!source) {
    throw InputError(str(options.model,
                         ": expected a chat template (chat_template.jinja, or "
                         "chat_template in tokenizer_config.json), got none. Give one with "
                         "--template FILE."));
  }
  return {*source, options.model};
}

OrderedJson render(const Templates& templates, const OrderedJson& defaults,
                   const OrderedJson& request) {
  OrderedJson context = defaults;
  for (const auto& [name, value] : request.items()) context[name] = value;
  const auto tools = request.find("tools");
  const bool has_tools = tools != request.end() && !tools->is_null();
  try {
    return {{"text", (has_tools ? templates.with_tools : templates.plain).render(context)}};
  } catch (const InputError& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

Run add_template(CLI::App& parent) {
  CLI::App& app =
      *parent.add_subcommand("template", "Render a chat template; contexts as JSON lines");
  auto options = std::make_shared<TemplateOptions>();
  auto* model = app.add_option("MODEL", options->model, kModelDescription);
  add_lookup_options(app, options->lookup);
  auto* file = app.add_option("--template", options->file, "A Jinja template file instead");
  model->excludes(file);
  app.footer(R"(Reads stdin: an object with messages, tools, add_generation_prompt, bos_token, ...
gives {"text": ...} or {"error": ...}. With MODEL its special tokens are there by default.
Example:
  echo '{"messages": [{"role": "user", "content": "Hello"}], "add_generation_prompt": true}' |
    halley template models/demo-21m)");
  return [options] {
    if (options->model.empty() && options->file.empty()) {
      throw InputError(
          "template: expected MODEL or --template FILE. Try 'halley template --help'.");
    }
    options->model = find_model(options->model, options->lookup);
    const Templates templates{load_template(*options, false), load_template(*options, true)};
    OrderedJson defaults = OrderedJson::object();
    if (!options->model.empty()) defaults = load_special_token_context(options->model);
    for_each_json_line(std::cin, std::cout, [&](const OrderedJson& request) {
      return render(templates, defaults, request);
    });
    return kExitOk;
  };
}

}  // namespace halley::cli
