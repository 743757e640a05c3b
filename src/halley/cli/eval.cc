// `halley eval`: perplexity of a model on a text, its divergence from a reference, and its accuracy
// on multiple-choice tasks.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/cli/command.h"
#include "halley/cli/comparison.h"
#include "halley/cli/logits_file.h"
#include "halley/cli/model_options.h"
#include "halley/cli/progress.h"
#include "halley/engine/logit_comparison.h"
#include "halley/engine/multiple_choice.h"
#include "halley/engine/perplexity.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

constexpr size_t kTaskBytesMax = size_t{1} << 30;

struct EvalOptions {
  ModelOptions model;
  WindowOptions windows;
  std::vector<std::string> texts, tasks;
  std::string logits;
  std::string reference;
  std::string reference_kv_dtype = "auto";
  bool is_json = false;
};

auto progress_of(ProgressBar& bar) {
  return [&bar](int64_t num_done, int64_t num_total) {
    bar.update(static_cast<double>(num_done), static_cast<double>(num_total));
  };
}

// Computes perplexity, and writes the logits file if --logits is given.
OrderedJson eval_alone(const EvalOptions& options, LoadedModel& loaded, const EvalText& text) {
  const int64_t window = options.windows.window;
  std::unique_ptr<LogitsFile> logits_file;
  PerplexityOptions perplexity_options;
  perplexity_options.kv_dtype = kv_dtype_of(options.model, *loaded.model);
  ProgressBar bar("evaluating");
  perplexity_options.on_progress = progress_of(bar);
  if (!options.logits.empty()) {
    const int64_t num_rows = num_scored_tokens(static_cast<int64_t>(text.ids.size()), window);
    logits_file = std::make_unique<LogitsFile>(options.logits, text.ids, num_rows,
                                               loaded.model->shape().vocab_size, window);
    perplexity_options.on_logits = [&](int64_t token_index, std::span<const float> logits) {
      logits_file->append(logits, text.ids.at(static_cast<size_t>(token_index)));
    };
  }
  const PerplexityResult result =
      compute_perplexity(*loaded.model, text.ids, window, perplexity_options);
  if (logits_file) logits_file->finish();
  return {{"text", text.path},
          {"perplexity", result.perplexity},
          {"num_tokens", result.num_tokens},
          {"nll", result.nll},
          {"window", window},
          {"kv_dtype", name_of(*perplexity_options.kv_dtype)},
          {"window_nll", result.window_nll}};
}

LogitComparison eval_against(const EvalOptions& options, LoadedModel& loaded, Reference& reference,
                             const EvalText& text) {
  const ReferenceLogits logits = reference.start(text, options.windows);
  const std::vector<ComparedModel> models = {
      {loaded.model.get(), kv_dtype_of(options.model, *loaded.model)}};
  ComparisonOptions comparison_options;
  comparison_options.window = options.windows.window;
  comparison_options.pool = loaded.pool.get();
  ProgressBar bar("comparing");
  comparison_options.on_progress = progress_of(bar);
  return compare_logits(logits, reference.vocab_size(), models, text.ids, comparison_options)
      .front();
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

void eval_text(const EvalOptions& options, LoadedModel& loaded, Reference* reference,
               const EvalText& text) {
  if (options.texts.size() > 1 && !options.is_json) std::printf("%s: ", text.path.c_str());
  if (reference == nullptr) {
    const OrderedJson json = eval_alone(options, loaded, text);
    if (options.is_json) {
      std::cout << json.dump() << '\n';
    } else {
      print_perplexity(json.at("perplexity").get<double>(), json.at("num_tokens").get<int64_t>(),
                       options.windows.window);
    }
    return;
  }
  const LogitComparison comparison = eval_against(options, loaded, *reference, text);
  if (!options.is_json) {
    print_comparison(comparison, options.windows.window);
    return;
  }
  OrderedJson json = {{"text", text.path}};
  json.update(json_of(comparison));
  json["window"] = options.windows.window;
  json["kv_dtype"] = name_of(kv_dtype_of(options.model, *loaded.model));
  json["reference"] = reference->path();
  if (reference->model() != nullptr) json["reference_kv_dtype"] = name_of(reference->kv_dtype());
  json["intervals"] = kIntervalsInWords;
  std::cout << json.dump() << '\n';
}

// The items of a file, and all their choices as tokens.
struct Task {
  std::vector<ChoiceItem> items;
  std::vector<EncodedChoice> choices;
};

Task load_task(const std::string& path, const Tokenizer& tokenizer) {
  Task task;
  std::istringstream lines(read_text_file(path, kTaskBytesMax));
  std::string line;
  for (size_t line_number = 1; std::getline(lines, line); ++line_number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = str(path, ": line ", line_number);
    task.items.push_back(parse_choice_item(parse_json(line, where), where));
    if (std::string(task.items.back().layout) != task.items.front().layout) {
      throw InputError(str(where, ": expected an item of ", task.items.front().layout,
                           " as on the lines before, got one of ", task.items.back().layout, "."));
    }
    for (const Choice& choice : task.items.back().choices) {
      task.choices.push_back(encode_choice(tokenizer, choice, where));
    }
  }
  if (task.items.empty()) throw InputError(str(path, ": expected at least one item, got none."));
  return task;
}

void eval_task(const EvalOptions& options, LoadedModel& loaded, const Tokenizer& tokenizer,
               const std::string& path) {
  const Task task = load_task(path, tokenizer);
  ProgressBar bar("choosing");
  ScoringOptions scoring;
  scoring.kv_dtype = kv_dtype_of(options.model, *loaded.model);
  scoring.on_progress = [&](size_t num_done, size_t num_total) {
    bar.update(static_cast<double>(num_done), static_cast<double>(num_total));
  };
  const std::vector<double> scores = score_choices(*loaded.model, task.choices, scoring);
  const ChoiceAccuracy accuracy = accuracy_of(task.items, scores);
  if (!options.is_json) {
    std::printf("%s: %s, %zu items: accuracy %.4f +- %.4f, by bytes %.4f +- %.4f\n", path.c_str(),
                task.items.front().layout, task.items.size(), accuracy.accuracy,
                accuracy.accuracy_error, accuracy.normalized, accuracy.normalized_error);
    return;
  }
  const OrderedJson json = {{"task", path},
                            {"layout", task.items.front().layout},
                            {"num_items", task.items.size()},
                            {"accuracy", accuracy.accuracy},
                            {"accuracy_stderr", accuracy.accuracy_error},
                            {"accuracy_norm", accuracy.normalized},
                            {"accuracy_norm_stderr", accuracy.normalized_error},
                            {"kv_dtype", name_of(*scoring.kv_dtype)},
                            {"log_likelihoods", scores}};
  std::cout << json.dump() << '\n';
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
  std::unique_ptr<Reference> reference;
  if (!options.reference.empty()) {
    reference =
        std::make_unique<Reference>(options.reference, model_options, options.reference_kv_dtype);
  }
  if (!options.tasks.empty()) {
    const auto tokenizer = load_tokenizer(options.model.model);
    for (const std::string& path : options.tasks) eval_task(options, loaded, *tokenizer, path);
  }
  for (const EvalText& text : texts) eval_text(options, loaded, reference.get(), text);
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
  return [options] { return run_eval(*options); };
}

}  // namespace halley::cli
