// `halley tokenize`: texts to ids and back, one JSON object a line.
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/cli/command.h"
#include "halley/cli/json_lines.h"
#include "halley/cli/named_model.h"
#include "halley/hub/pull.h"

namespace halley::cli {
namespace {

struct TokenizeOptions {
  std::string model;
  hub::LookupOptions lookup;
  bool is_skipping_special = false;
};

std::vector<int32_t> ids_of(const OrderedJson& value) {
  if (!value.is_array()) {
    throw InputError(str("\"ids\": expected an array of integers, got ", value.type_name(), "."));
  }
  std::vector<int32_t> ids;
  for (const OrderedJson& id : value) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      throw InputError(
          str("\"ids\": expected integers from 0 to ", INT32_MAX, ", got ", quote(id.dump()), "."));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

OrderedJson answer(const Tokenizer& tokenizer, const TokenizeOptions& options,
                   const OrderedJson& request) {
  const auto text = request.find("text");
  const auto ids = request.find("ids");
  if ((text == request.end()) == (ids == request.end())) {
    throw InputError("expected either \"text\" or \"ids\" in the object.");
  }
  if (ids != request.end()) {
    return {{"text", tokenizer.decode(ids_of(*ids), options.is_skipping_special)}};
  }
  if (!text->is_string()) {
    throw InputError(str("\"text\": expected a string, got ", text->type_name(), "."));
  }
  const auto& content = text->get_ref<const std::string&>();
  return {{"ids", tokenizer.encode(content, false)},
          {"ids_with_special", tokenizer.encode(content, true)}};
}

}  // namespace

Run add_tokenize(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand(
      "tokenize", "Texts to token ids and back, as JSON lines; needs only the tokenizer's files");
  auto options = std::make_shared<TokenizeOptions>();
  app.add_option("MODEL", options->model, kModelDescription)->required();
  add_lookup_options(app, options->lookup);
  app.add_flag("--skip-special", options->is_skipping_special,
               "Leave special tokens out of decoded text");
  app.footer(R"(Reads stdin. {"text": ...} gives {"ids": [...], "ids_with_special": [...]};
{"ids": [...]} gives {"text": ...}.
Example:
  echo '{"text": "Hello"}' | halley tokenize models/demo-21m)");
  return [options] {
    const std::unique_ptr<Tokenizer> tokenizer =
        load_tokenizer(find_model(options->model, options->lookup));
    for_each_json_line(std::cin, std::cout, [&](const OrderedJson& request) {
      return answer(*tokenizer, *options, request);
    });
    return kExitOk;
  };
}

}  // namespace halley::cli
