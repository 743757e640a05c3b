// `halley eval`: how well a model predicts a text, and the reference logits for comparisons.
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/cli/command.h"
#include "halley/cli/logits_file.h"
#include "halley/cli/model_options.h"
#include "halley/cli/progress.h"
#include "halley/engine/perplexity.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

// A text of this size takes days on any machine; more is a mistake.
constexpr size_t kTextBytesMax = size_t{1} << 30;

struct EvalOptions {
  ModelOptions model;
  std::string text;
  std::string logits;
  int64_t window = 1024;
  bool is_json = false;
};

// Rows that windows of `window` tokens score: all but the first of each.
int64_t num_scored_rows(int64_t num_tokens, int64_t window) {
  const int64_t rest = num_tokens % window;
  return num_tokens / window * (window - 1) + (rest > 0 ? rest - 1 : 0);
}

int run_eval(const EvalOptions& options) {
  if (options.model.model.empty()) {
    throw InputError("eval: expected MODEL: a text needs the model's tokenizer. See --help.");
  }
  const auto tokenizer = load_tokenizer(check_model_dir(options.model.model));
  const std::vector<int32_t> ids =
      tokenizer->encode(read_text_file(options.text, kTextBytesMax), false);
  const LoadedModel loaded = load_model_files(options.model);
  std::unique_ptr<LogitsFile> logits_file;
  if (!options.logits.empty()) {
    const int64_t num_rows = num_scored_rows(static_cast<int64_t>(ids.size()), options.window);
    logits_file = std::make_unique<LogitsFile>(options.logits, ids, num_rows,
                                               loaded.model->shape().vocab_size, options.window);
  }
  PerplexityOptions perplexity_options;
  const KvDType kv_dtype =
      parse_kv_dtype(options.model.kv_dtype).value_or(loaded.model->shape().kv_dtype_default);
  perplexity_options.kv_dtype = kv_dtype;
  ProgressBar bar("evaluating");
  perplexity_options.on_progress = [&](int64_t num_done, int64_t num_total) {
    bar.update(static_cast<double>(num_done), static_cast<double>(num_total));
  };
  if (logits_file) {
    perplexity_options.on_logits = [&](int64_t token_index, std::span<const float> logits) {
      logits_file->append(logits, ids.at(static_cast<size_t>(token_index)));
    };
  }
  const PerplexityResult result =
      compute_perplexity(*loaded.model, ids, options.window, perplexity_options);
  if (logits_file) logits_file->finish();
  if (options.is_json) {
    const OrderedJson json = {{"perplexity", result.perplexity},
                              {"num_tokens", result.num_tokens},
                              {"nll", result.nll},
                              {"window", options.window},
                              {"kv_dtype", name_of(kv_dtype)},
                              {"window_nll", result.window_nll}};
    std::cout << json.dump() << '\n';
  } else {
    std::printf("perplexity %.4f over %lld tokens (windows of %lld)\n", result.perplexity,
                static_cast<long long>(result.num_tokens), static_cast<long long>(options.window));
  }
  return kExitOk;
}

}  // namespace

Run add_eval(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand("eval", "Perplexity of a text; reference logits");
  auto options = std::make_shared<EvalOptions>();
  add_model_options(app, options->model);
  app.add_option("--perplexity", options->text, "The text, UTF-8")->required();
  app.add_option("--window", options->window,
                 "Tokens of a window; windows do not overlap, the first token is not scored")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--logits", options->logits,
                 "Also write every scored row's log probabilities (safetensors; 2 bytes a value)");
  app.add_flag("--json", options->is_json, "One JSON object instead of text");
  app.footer(R"(Example:
  halley eval models/demo-21m --perplexity testdata/text/docs_heldout.txt --window 1024)");
  return [options] { return run_eval(*options); };
}

}  // namespace halley::cli
