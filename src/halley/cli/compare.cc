// `halley compare`: size, perplexity, divergence and speed of several models versus one reference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/cli/batch_run.h"
#include "halley/cli/command.h"
#include "halley/cli/compared_model.h"
#include "halley/cli/comparison.h"
#include "halley/cli/model_options.h"
#include "halley/cli/named_model.h"
#include "halley/cli/progress.h"
#include "halley/cli/svg_plot.h"
#include "halley/engine/available_memory.h"
#include "halley/engine/logit_comparison.h"
#include "halley/evaluation/evaluation.h"
#include "halley/json/json.h"

namespace halley::cli {
namespace {

constexpr size_t kResultBytesMax = size_t{64} << 20;
// The short measurement of speed: enough to rank models, not to publish.
constexpr int64_t kInputLen = 256, kOutputLen = 32;
constexpr int kNumIterations = 3;

struct CompareOptions {
  ModelOptions defaults;  // device, threads, kv_dtype, self-check
  std::vector<std::string> models;
  std::string reference, text, from, svg;
  std::string reference_kv_dtype = "auto";
  WindowOptions windows;
  int64_t memory_bytes = 0;
  bool has_speed = true;
  bool is_json = false;
};

// Bits of the layers' linear weights as stored, with scales and zero points.
double linear_bits(const ModelPlan& plan) {
  double num_bits = 0, num_weights = 0;
  for (const ModelPart& part : plan.parts) {
    if (part.kind != "linear" || !part.name.starts_with("layers.")) continue;
    for (const LinearPlan& linear : part.plans) {
      const double count =
          static_cast<double>(linear.out_features) * static_cast<double>(linear.in_features);
      num_bits += linear.bits_per_weight * count;
      num_weights += count;
    }
  }
  return num_weights > 0 ? num_bits / num_weights : 0;
}

// compared_model() with the path of a model that is named ORG/NAME.
ModelOptions found_model(const std::string& text, const ModelOptions& defaults) {
  ModelOptions options = compared_model(text, defaults);
  find_model(options);
  return options;
}

// The plan of one rank that has all of the model.
ModelPlan whole_plan(const ModelOptions& options) {
  const ModelFiles files = open_model_files(options);
  return plan_model(files.config, *files.source,
                    load_options_of(options, files, choose_device(options.device)));
}

// Sizes are those of the whole model, on however many ranks it runs.
OrderedJson facts_of(const std::string& name, const LoadedModel& loaded,
                     const ModelOptions& options, KvDType kv_dtype) {
  const RankShare& share = loaded.plan.config.share;
  const bool is_divided = share.num_ranks * share.num_stages > 1;
  const ModelPlan plan = is_divided ? whole_plan(options) : loaded.plan;
  const double num_weights = static_cast<double>(plan.f16_bytes) / 2;
  return {{"name", name},
          {"format", plan.format},
          {"summary", plan.summary},
          {"bits_per_weight", linear_bits(plan)},
          {"bits_per_weight_all", 8 * static_cast<double>(plan.stored_bytes) / num_weights},
          {"stored_bytes", plan.stored_bytes},
          {"packed_bytes", plan.packed_bytes},
          {"kernels", kernels_in_words(plan)},
          {"kv_dtype", name_of(kv_dtype)},
          {"precision", name_of(loaded.context->precision)}};
}

// Takes ownership of the model and destroys it.
OrderedJson measure_speed(LoadedModel& loaded, KvDType kv_dtype) {
  const ModelShape shape = loaded.model->shape();
  const int64_t input_len = std::min(kInputLen, shape.max_positions / 2);
  const int64_t output_len = std::min(kOutputLen, shape.max_positions / 2);
  EngineConfig config;
  config.kv_dtype = kv_dtype;
  config.precision = precision_mode_of(loaded);
  config.max_model_len = input_len + output_len;
  config.max_num_seqs = 1;
  config.has_prefix_caching = false;  // every iteration computes the same prompt
  const auto requests = make_batch(1, input_len, output_len, shape.vocab_size);
  Engine engine(std::move(loaded.model), nullptr, {}, config);
  run_batch(engine, requests);
  std::vector<double> first_token, output_token;
  for (int i = 0; i < kNumIterations; ++i) {
    const BatchTimes times = run_batch(engine, requests);
    first_token.push_back(times.first_token);
    output_token.push_back(times.output_token);
  }
  return {{"prefill_tokens_per_s", static_cast<double>(input_len) / median(first_token)},
          {"decode_tokens_per_s", 1 / median(output_token)}};
}

// One model of a group, loaded.
struct Candidate {
  OrderedJson facts;
  KvDType kv_dtype;
  LoadedModel loaded;
};

// Memory of a candidate while it is compared: packed weights, KV cache of one window, logits.
int64_t candidate_bytes(const ModelOptions& options, const WindowOptions& windows) {
  const ModelPlan plan = whole_plan(options);
  const auto num_positions =
      static_cast<size_t>(std::min(windows.window, plan.config.max_positions));
  const size_t num_logits = static_cast<size_t>(ComparisonOptions{}.chunk_rows) *
                            static_cast<size_t>(plan.config.vocab_size);
  return static_cast<int64_t>(plan.packed_bytes + plan.kv_bytes_per_token * num_positions +
                              num_logits * sizeof(float));
}

class Comparison {
 public:
  explicit Comparison(const CompareOptions& options)
      : options_(options),
        text_(load_eval_text(found_model(options.models.front(), options.defaults).model,
                             options.text, options.windows)),
        reference_(options.reference, options.defaults, options.reference_kv_dtype,
                   load_model_files) {}

  OrderedJson run() {
    prepare_local_ranks(options_.defaults.ranks);
    // On a GPU, and by processes, one model at a time is compared with the reference.
    const bool is_alone = choose_device(options_.defaults.device).device != "cpu" ||
                          are_ranks_processes(options_.defaults.ranks);
    int64_t budget = options_.memory_bytes;
    if (budget == 0) budget = available_memory_bytes() / 10 * 8;
    std::vector<std::string> group;
    int64_t num_bytes = 0;
    for (const std::string& name : options_.models) {
      const ModelOptions options = found_model(name, options_.defaults);
      const int64_t more = candidate_bytes(options, options_.windows);
      if (!group.empty() && (is_alone || num_bytes + more > budget)) {
        run_group(group);
        group.clear();
        num_bytes = 0;
      }
      group.push_back(name);
      num_bytes += more;
    }
    run_group(group);
    return result();
  }

 private:
  void run_group(const std::vector<std::string>& names) {
    std::vector<std::unique_ptr<Candidate>> candidates;
    std::vector<ComparedModel> models;
    for (const std::string& name : names) {
      const ModelOptions options = found_model(name, options_.defaults);
      if (load_eval_text(options.model, options_.text, options_.windows).ids != text_.ids) {
        throw InputError(str("model ", quote(name), ": expected the same tokens of ",
                             quote(text_.path),
                             " as the first model's tokenizer gives, got "
                             "others. Compare models that come from one checkpoint."));
      }
      auto candidate = std::make_unique<Candidate>();
      candidate->loaded = load_model_files(options);
      candidate->kv_dtype = kv_dtype_of(options, *candidate->loaded.model);
      candidate->facts = facts_of(name, candidate->loaded, options, candidate->kv_dtype);
      models.push_back({candidate->loaded.model.get(), candidate->kv_dtype});
      candidates.push_back(std::move(candidate));
    }
    ComparisonOptions comparison;
    comparison.window = options_.windows.window;
    comparison.pool = candidates.front()->loaded.pool.get();
    const std::string device = models.front().model->device_name();
    device_ = device == "cpu" ? cpu_name() : device;
    {
      ProgressBar bar(str("comparing ", names.size()));
      comparison.on_progress = [&](int64_t num_done, int64_t num_total) {
        bar.update(static_cast<double>(num_done), static_cast<double>(num_total));
      };
      results_ = compare_logits(reference_.start(text_, options_.windows), reference_.vocab_size(),
                                models, text_.ids, comparison);
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      OrderedJson row = std::move(candidates[i]->facts);
      row.update(json_of(results_[i]));
      if (options_.has_speed) {
        row["speed"] = measure_speed(candidates[i]->loaded, candidates[i]->kv_dtype);
      }
      candidates[i].reset();
      rows_.push_back(std::move(row));
    }
  }

  OrderedJson result() {
    OrderedJson reference = {{"name", reference_.path()}};
    if (const LoadedModel* model = reference_.model()) {
      const KvDType kv_dtype = reference_.kv_dtype();
      reference = facts_of(reference_.path(), *model, reference_.options(), kv_dtype);
      if (options_.has_speed) {
        LoadedModel taken = reference_.take_model();
        reference["speed"] = measure_speed(taken, kv_dtype);
      }
    }
    reference["perplexity"] = results_.front().reference_perplexity;
    OrderedJson json = {{"device", device_},
                        {"threads", num_threads_of(options_.defaults.threads)},
                        {"text", options_.text},
                        {"window", options_.windows.window},
                        {"num_windows", results_.front().num_windows},
                        {"num_tokens", results_.front().num_tokens},
                        {"intervals", kIntervalsInWords},
                        {"reference", std::move(reference)},
                        {"models", rows_}};
    if (options_.has_speed) {
      json["speed"] = str("medians of ", kNumIterations, " runs of one request, ", kInputLen,
                          " prompt and ", kOutputLen, " output tokens: a short measurement");
    }
    return json;
  }

  const CompareOptions& options_;
  EvalText text_;
  Reference reference_;
  std::string device_;
  std::vector<LogitComparison> results_;  // for the last group
  std::vector<OrderedJson> rows_;
};

Estimate estimate_of(const OrderedJson& json) {
  Estimate estimate{json.at("value").get<double>(), std::nullopt};
  if (!json.at("low").is_null()) {
    estimate.interval = {json.at("low").get<double>(), json.at("high").get<double>()};
  }
  return estimate;
}

void print_row(const OrderedJson& row, bool is_reference) {
  const auto number = [&](const char* name) { return row.at(name).get<double>(); };
  std::printf("%s\n", row.at("name").get<std::string>().c_str());
  if (row.contains("format")) {
    const auto summary = row.at("summary").get<std::string>();
    std::printf(
        "  %s%s: %.3f bits a weight in linear layers, %.3f in all; %s stored, %s in memory; "
        "KV %s\n",
        row.at("format").get<std::string>().c_str(),
        summary.empty() ? "" : str(" (", summary, ")").c_str(), number("bits_per_weight"),
        number("bits_per_weight_all"), format_bytes(number("stored_bytes")).c_str(),
        format_bytes(number("packed_bytes")).c_str(),
        row.at("kv_dtype").get<std::string>().c_str());
  }
  std::printf("  perplexity %.4f", number("perplexity"));
  if (!is_reference) {
    std::printf(", log-perplexity increase %s\n  KL %s, top-1 agreement %s",
                in_words(estimate_of(row.at("log_perplexity_increase")), 5).c_str(),
                in_words(estimate_of(row.at("kl_divergence")), 6).c_str(),
                in_words(estimate_of(row.at("top1_agreement")), 4).c_str());
  }
  std::printf("\n");
  if (row.contains("speed")) {
    const OrderedJson& speed = row.at("speed");
    std::printf("  prefill %.1f tokens/s, decode %.1f tokens/s\n",
                speed.at("prefill_tokens_per_s").get<double>(),
                speed.at("decode_tokens_per_s").get<double>());
  }
}

void print_text(const OrderedJson& json) {
  std::printf("%s: %lld tokens, %lld windows of %lld\n\nreference ",
              json.at("text").get<std::string>().c_str(), json.at("num_tokens").get<long long>(),
              json.at("num_windows").get<long long>(), json.at("window").get<long long>());
  print_row(json.at("reference"), true);
  for (const OrderedJson& row : json.at("models")) print_row(row, false);
  std::printf("\n%s\n", json.at("intervals").get<std::string>().c_str());
  if (json.contains("speed")) {
    std::printf("speed: %s\n", json.at("speed").get<std::string>().c_str());
  }
}

Plot plot_of(const OrderedJson& json) {
  const auto file_name = [](const OrderedJson& path) {
    return std::filesystem::path(path.get<std::string>()).filename().string();
  };
  Plot plot = {
      .title = str("Log-perplexity increase over ", file_name(json.at("reference").at("name")),
                   " on ", file_name(json.at("text"))),
      .x_label = "bits per weight of the linear layers, scales and zeros included",
      .y_label = "log-perplexity increase (nats a token)",
      .points = {}};
  for (const OrderedJson& row : json.at("models")) {
    const Estimate increase = estimate_of(row.at("log_perplexity_increase"));
    const auto interval =
        increase.interval.value_or(Estimate::Interval{increase.value, increase.value});
    plot.points.push_back({.label = row.at("name").get<std::string>(),
                           .x = row.at("bits_per_weight").get<double>(),
                           .y = increase.value,
                           .y_low = interval.low,
                           .y_high = interval.high});
  }
  return plot;
}

void write_svg(const Plot& plot, const std::string& path) {
  std::ofstream file(path);
  file << render_svg(plot);
  if (!file.flush()) throw InputError(str(path, ": cannot write."));
}

OrderedJson read_result(const std::string& path) {
  OrderedJson json = parse_ordered_json(read_text_file(path, kResultBytesMax), path);
  try {
    print_text(json);
    plot_of(json);  // fails here if a measure is missing
  } catch (const OrderedJson::exception& error) {
    throw InputError(str(path, ": expected what `halley compare --json` printed, got ",
                         quote(error.what()), "."));
  }
  return json;
}

// A rank other than 0 of a job has its share of each model, one after the other.
[[noreturn]] void follow_each(const CompareOptions& options) {
  for (const std::string& name : options.models) {
    try {
      load_model_files(found_model(name, options.defaults));
    } catch (const RankHasEnded&) {  // with this model
    }
  }
  throw RankHasEnded();
}

int run_compare(const CompareOptions& options) {
  const bool is_saved = !options.from.empty();
  if (is_saved != options.models.empty() || is_saved != options.reference.empty() ||
      is_saved != options.text.empty()) {
    throw InputError(
        "compare: expected either MODEL..., --reference and --perplexity, or --from FILE. See "
        "--help.");
  }
  if (!is_saved && is_other_rank(options.defaults.ranks)) follow_each(options);
  CompareOptions sharing = options;
  sharing.defaults.gpu_memory_utilization /= 2;  // by a model and the reference
  const OrderedJson json = is_saved ? read_result(options.from) : Comparison(sharing).run();
  if (!is_saved && options.is_json) {
    std::cout << json.dump() << '\n';
  } else if (!is_saved) {
    print_text(json);
  }
  if (!options.svg.empty()) write_svg(plot_of(json), options.svg);
  return kExitOk;
}

}  // namespace

Run add_compare(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand(
      "compare", "Compare size, perplexity, divergence and speed of models with a reference");
  auto options = std::make_shared<CompareOptions>();
  app.add_option("MODEL", options->models,
                 "Models: directories, GGUF files or ORG/NAME; MODEL@kv=int4 sets the type of that "
                 "model's KV cache, "
                 "MODEL@precision=low the precision of weights that hold two");
  add_lookup_options(app, options->defaults.lookup, /*downloads=*/true);
  app.add_option("--reference", options->reference,
                 "The model to compare with, or a file that `halley eval --logits` wrote");
  app.add_option("--perplexity", options->text, "Text file, UTF-8");
  add_window_options(app, options->windows);
  add_gpu_options(app, options->defaults);
  add_threads_option(app, options->defaults.threads);
  add_rank_options(app, options->defaults.ranks);
  add_kv_option(app, "--kv-dtype", options->defaults.kv_dtype, "Type of the models' KV cache");
  add_kv_option(app, "--reference-kv-dtype", options->reference_kv_dtype,
                "Type of the reference's KV cache");
  app.add_option("--memory", options->memory_bytes,
                 "Memory in bytes for the models of one group; groups run one after another, each "
                 "with the reference. 0: 80 % of the free memory")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60))
      ->capture_default_str();
  app.add_flag("--speed,!--no-speed", options->has_speed,
               "Also measure prefill and decode briefly (default: on)");
  app.add_flag("--self-check,!--no-self-check", options->defaults.has_self_check,
               "At load, compare every kernel with the reference on its own weights (default: on)");
  app.add_option("--from", options->from,
                 "Show the results of an earlier --json from a file, instead of running");
  app.add_option("--svg", options->svg, "Also plot log-perplexity increase over bits per weight");
  app.add_flag("--json", options->is_json, "One JSON object instead of text");
  app.footer(R"(Example:
  halley compare build/demo-w4 build/demo-w4@kv=int4 --reference models/demo-21m \
    --perplexity testdata/text/wikitext2_test.txt --windows 20 --svg build/demo.svg)");
  return [options] {
    options->reference = find_model(options->reference, options->defaults.lookup);
    return run_compare(*options);
  };
}

}  // namespace halley::cli
