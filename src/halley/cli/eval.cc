// `halley eval`: perplexity of a model on a text, its divergence from a reference, and its accuracy
// on multiple-choice tasks.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/cli/command.h"
#include "halley/cli/comparison.h"
#include "halley/cli/model_options.h"
#include "halley/cli/named_model.h"
#include "halley/cli/progress.h"
#include "halley/engine/logit_comparison.h"
#include "halley/evaluation/evaluation.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

struct EvalOptions {
  ModelOptions model;
  WindowOptions windows;
  std::vector<std::string> texts, tasks;
  std::string logits;
  std::string reference;
  std::string reference_kv_dtype = "auto";
  bool is_json = false;
};

/// Draws the progress of a measurement.
EvalProgress progress_of(ProgressBar& bar) {
  return [&bar](double num_done, double num_total) { bar.update(num_done, num_total); };
}

void print_perplexity(double perplexity, int64_t num_tokens, int64_t window) {
  std::printf("perplexity %.4f over %lld tokens (windows of %lld)\n", perplexity,
              static_cast<long long>(num_tokens), static_cast<long long>(window));
}

void print_comparison(const LogitComparison& comparison, int64_t window) {
  print_perplexity(comparison.perplexity, comparison.num_tokens, window);
  std::printf("reference perplexity %.4f; ratio %s, log-perplexity increase %s\n",
              comparison.reference_perplexity, in_words(comparison.perplexity_ratio, 5).c_str(),
              in_words(comparison.log_perplexity_increase, 5).c_str());
  std::printf("KL divergence %s nats a token; 99th percentile %.5f, maximum %.5f\n",
              in_words(comparison.kl_divergence, 6).c_str(), comparison.kl_p99, comparison.kl_max);
  std::printf("top-1 agreement %s\n(%s)\n", in_words(comparison.top1_agreement, 4).c_str(),
              kIntervalsInWords);
}

void eval_text(const EvalOptions& options, const EvaluatedModel& model, Reference* reference,
               const EvalText& text) {
  const int64_t window = options.windows.window;
  if (options.texts.size() > 1 && !options.is_json) std::printf("%s: ", text.path.c_str());
  OrderedJson json;
  std::optional<LogitComparison> comparison;
  if (reference == nullptr) {
    ProgressBar bar("evaluating");
    json = eval_perplexity(model, text, window, options.logits, progress_of(bar));
  } else {
    ProgressBar bar("comparing");
    comparison = compare_with(model, *reference, text, options.windows, progress_of(bar));
    json = json_of(*comparison, model, *reference, text, window);
  }
  if (options.is_json) {
    std::cout << json.dump() << '\n';
  } else if (comparison) {
    print_comparison(*comparison, window);
  } else {
    print_perplexity(json.at("perplexity").get<double>(), json.at("num_tokens").get<int64_t>(),
                     window);
  }
}

void eval_choices(const EvalOptions& options, const EvaluatedModel& model,
                  const Tokenizer& tokenizer, const std::string& path) {
  TaskResult result;
  {
    ProgressBar bar("choosing");
    result = eval_task(model, tokenizer, path, progress_of(bar));
  }
  if (options.is_json) {
    std::cout << json_of(result, model.kv_dtype).dump() << '\n';
    return;
  }
  const ChoiceAccuracy& accuracy = result.accuracy;
  std::printf("%s: %s, %zu items: accuracy %.4f +- %.4f, by bytes %.4f +- %.4f\n", path.c_str(),
              result.layout, result.num_items, accuracy.accuracy, accuracy.accuracy_error,
              accuracy.normalized, accuracy.normalized_error);
}

int run_eval(const EvalOptions& options) {
  if (options.texts.empty() == options.tasks.empty()) {
    throw InputError("eval: expected either --perplexity or --tasks. See --help.");
  }
  if (options.texts.empty() && (!options.logits.empty() || !options.reference.empty())) {
    throw InputError("--logits, --reference: expected --perplexity with them.");
  }
  if (options.model.model.empty()) {
    throw InputError("eval: expected MODEL: a text needs the model's tokenizer. See --help.");
  }
  if (!options.logits.empty() && options.texts.size() > 1) {
    throw InputError(str("--logits: expected one text to write, got ", options.texts.size(), "."));
  }
  std::vector<EvalText> texts;
  for (const std::string& path : options.texts) {
    texts.push_back(load_eval_text(options.model.model, path, options.windows));
  }
  ModelOptions model_options = options.model;
  // Two models share a GPU.
  if (std::filesystem::is_directory(options.reference)) model_options.gpu_memory_utilization /= 2;
  LoadedModel loaded = load_model_files(model_options);
  const EvaluatedModel model = {loaded, kv_dtype_of(options.model, *loaded.model)};
  std::unique_ptr<Reference> reference;
  if (!options.reference.empty()) {
    reference = std::make_unique<Reference>(options.reference, model_options,
                                            options.reference_kv_dtype, load_model_files);
  }
  if (!options.tasks.empty()) {
    const auto tokenizer = load_tokenizer(options.model.model);
    for (const std::string& path : options.tasks) eval_choices(options, model, *tokenizer, path);
  }
  for (const EvalText& text : texts) eval_text(options, model, reference.get(), text);
  return kExitOk;
}

}  // namespace

Run add_eval(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand(
      "eval", "Measure perplexity, divergence from a reference, and accuracy on tasks");
  auto options = std::make_shared<EvalOptions>();
  add_model_options(app, options->model);
  add_precision_option(app, options->model);
  app.add_option("--perplexity", options->texts, "Text file, UTF-8; repeat for several")
      ->allow_extra_args(false);
  app.add_option("--tasks", options->tasks,
                 "Multiple-choice task: one JSON object per line with the fields of PIQA, ARC, "
                 "HellaSwag or WinoGrande. Prints accuracy, also by log likelihood per byte, with "
                 "standard errors")
      ->allow_extra_args(false);
  add_window_options(app, options->windows);
  CLI::Option* logits =
      app.add_option("--logits", options->logits,
                     "Also write every scored row's log probabilities (safetensors; 2 bytes "
                     "each)");
  app.add_option("--reference", options->reference,
                 "Compare with this model, or with the log probabilities in a file that --logits "
                 "wrote: perplexity ratio, KL divergence and top-1 agreement")
      ->excludes(logits);
  add_kv_option(app, "--reference-kv-dtype", options->reference_kv_dtype,
                "Type of the reference's KV cache");
  app.add_flag("--json", options->is_json, "One JSON object per text instead of a table");
  app.footer(R"(Examples:
  halley eval models/demo-21m --perplexity testdata/text/docs_heldout.txt --window 1024
  halley eval models/demo-21m --perplexity testdata/text/docs_heldout.txt --kv-dtype int4 \
    --reference models/demo-21m --windows 20
  halley eval models/demo-21m --tasks testdata/multiple_choice/piqa.jsonl)");
  return [options] {
    find_model(options->model);
    options->reference = find_model(options->reference, options->model.lookup);
    return run_eval(*options);
  };
}

}  // namespace halley::cli
