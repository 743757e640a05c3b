// `halley quantize`: makes a low-precision checkpoint from one in full precision.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/model_dir.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/cli/command.h"
#include "halley/cli/model_options.h"
#include "halley/cli/progress.h"
#include "halley/core/thread_pool.h"
#include "halley/json/json.h"
#include "halley/quant/methods/quantize_model.h"

namespace halley::cli {
namespace {

constexpr size_t kTextBytesMax = size_t{1} << 30;

constexpr const char* kExamples = R"(
Examples:
  halley quantize models/demo-21m --method rtn --out build/demo-w4
  halley quantize models/demo-21m --method rtn --bits 8 --override '*.down_proj=none' \
    --out build/demo-w8 --calibrate testdata/text/wikitext2_valid.txt
)";

struct QuantizeOptions {
  std::string model, method, out;
  std::optional<std::string> text;
  RecipeChanges changes;
  std::vector<std::string> overrides;
  int64_t num_samples = 64, sample_length = 1024;
  int threads = 0;
  size_t num_worst = 10;
  bool is_json = false;
};

/// A hash of the calibration tokens, since the text decides the result.
uint64_t hash_of(std::span<const int32_t> ids) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const int32_t id : ids) {
    hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001B3u;
  }
  return hash;
}

std::string fingerprint_of(const QuantizeOptions& options, const Recipe& recipe,
                           const TensorSource& source, const CalibrationTokens& tokens) {
  size_t num_bytes = 0;
  for (const TensorInfo& info : source.tensors()) num_bytes += info.num_bytes;
  std::string text =
      str("notes 2\nmethod ", recipe.method, "\n", describe(recipe), "\ndamp ", recipe.damp,
          "\nalpha ", recipe.alpha_input, "\ns8 share ", recipe.s8_share_max, "\nstatic ",
          recipe.is_activation_static, recipe.has_static_groups, "\nmodel ", options.model, ", ",
          num_bytes, " bytes\ntokens ", tokens.ids.size(), " of ", tokens.sequence_length,
          ", hash ", hash_of(tokens.ids), "\n");
  for (const std::string& change : options.overrides) text += str("override ", change, "\n");
  return text;
}

/// The tensors that were rounded to f16, in all and one by one; null where none had another type.
OrderedJson rounding_json(const QuantizeSummary& summary) {
  if (summary.roundings.empty()) return nullptr;
  const RoundedModel model = rounded_model_of(summary.roundings);
  OrderedJson json = to_json(model.rounding);
  json["from"] = model.dtypes;
  json["tensors"] = OrderedJson::array();
  for (const RoundingReport& report : summary.roundings) json["tensors"].push_back(to_json(report));
  return json;
}

OrderedJson to_json(const QuantizeOptions& options, const Recipe& recipe,
                    const QuantizeSummary& summary) {
  OrderedJson layers = OrderedJson::array();
  for (const LinearReport& report : summary.reports) {
    layers.push_back({{"name", report.name},
                      {"bits", report.bits},
                      {"is_quantized", report.is_quantized},
                      {"relative_error", report.relative_error},
                      {"s4_share", report.s4_share}});
  }
  return {{"method", recipe.method},
          {"recipe", describe(recipe)},
          {"out", options.out},
          {"seconds", summary.seconds},
          {"layers_resumed", summary.num_layers_resumed},
          {"source_bytes", summary.source_bytes},
          {"written_bytes", summary.written_bytes},
          {"s4_share", summary.s4_share},
          {"notes", summary.notes},
          {"error_inputs", summary.is_calibrated ? "calibration" : "random"},
          {"rounded_to_f16", rounding_json(summary)},
          {"layers", layers}};
}

void print_layers(const std::vector<LinearReport>& reports) {
  for (const LinearReport& report : reports) {
    std::printf("%-52s %2d bits  error %8.5f", report.name.c_str(), report.bits,
                report.relative_error);
    if (report.s4_share > 0) std::printf("  s4 %3.0f %%", 100 * report.s4_share);
    std::printf("%s\n", report.is_quantized ? "" : "  not quantized");
  }
}

void print_rounding(const std::string& name, const std::string& dtype,
                    const F16Rounding& rounding) {
  std::printf("%-52s %s: %lld of %lld values changed, %lld to zero", name.c_str(), dtype.c_str(),
              static_cast<long long>(rounding.num_changed),
              static_cast<long long>(rounding.num_values),
              static_cast<long long>(rounding.num_zeroed));
  if (rounding.num_changed > 0) {
    std::printf("; worst error %.3g relative, %.3g absolute", rounding.worst_relative_error,
                rounding.worst_absolute_error);
  }
  std::printf("\n");
}

void print_roundings(const std::vector<RoundingReport>& reports) {
  if (reports.empty()) return;
  std::printf("\nrounded to f16\n");
  for (const RoundingReport& report : reports) {
    if (report.kept_because.empty()) print_rounding(report.name, report.dtype, report.rounding);
  }
  const RoundedModel model = rounded_model_of(reports);
  print_rounding("in all", "values", model.rounding);
}

void print(const QuantizeOptions& options, const QuantizeSummary& summary) {
  std::printf("relative error of each layer's output on %s\n",
              summary.is_calibrated ? "the calibration text" : "random inputs");
  print_layers(summary.reports);
  std::vector<LinearReport> worst = summary.reports;
  std::stable_sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) {
    return a.relative_error > b.relative_error;
  });
  worst.resize(std::min(worst.size(), options.num_worst));
  std::printf("\nthe worst\n");
  print_layers(worst);
  print_roundings(summary.roundings);
  for (const std::string& note : summary.notes) std::printf("note: %s\n", note.c_str());
  std::printf("\n%s: %s from %s, %.1f s", options.out.c_str(),
              format_bytes(summary.written_bytes).c_str(),
              format_bytes(summary.source_bytes).c_str(), summary.seconds);
  if (summary.s4_share > 0) {
    std::printf(", %.0f %% of the work in 4 bits on both sides", 100 * summary.s4_share);
  }
  if (summary.num_layers_resumed > 0) {
    std::printf(", %lld layers were there", static_cast<long long>(summary.num_layers_resumed));
  }
  std::printf("\n");
}

CalibrationTokens read_tokens(const QuantizeOptions& options, const std::string& model_dir) {
  if (!options.text) return {};
  const std::vector<int32_t> ids =
      load_tokenizer(model_dir)->encode(read_text_file(*options.text, kTextBytesMax), false);
  return cut_calibration_tokens(ids, options.num_samples, options.sample_length);
}

/// A note for each technique that the method has and that needs a text which was not given.
void note_left_out(const QuantizeOptions& options, const Recipe& recipe,
                   std::vector<std::string>& notes) {
  RecipeChanges changes = options.changes;
  changes.has_calibration = true;
  const Recipe whole = make_recipe(options.method, changes);
  for (const Technique& technique : techniques()) {
    if (!technique.has(whole) || technique.has(recipe)) continue;
    notes.push_back(str("without ", technique.name, ": it needs a text, --calibrate"));
  }
}

int run_quantize(const QuantizeOptions& options) {
  RecipeChanges changes = options.changes;
  changes.has_calibration = options.text.has_value();
  const Recipe recipe = make_recipe(options.method, changes);
  QuantizeJob job = {.model_dir = check_model_dir(options.model),
                     .out_dir = options.out,
                     .recipe = recipe,
                     .overrides = {},
                     .tokens = {},
                     .fingerprint = {}};
  for (const std::string& text : options.overrides) {
    job.overrides.push_back(parse_layer_override(text));
  }
  const HfConfig config = HfConfig::load(job.model_dir);
  const auto source = open_checkpoint_weights(job.model_dir);
  job.tokens = read_tokens(options, job.model_dir);
  job.fingerprint = fingerprint_of(options, recipe, *source, job.tokens);
  ThreadPool pool(num_threads_of(options.threads));
  ExecContext context{pool};
  QuantizeSummary summary;
  {
    ProgressBar bar("quantizing");
    summary = quantize_model(context, config, *source, job, [&](const QuantizeProgress& progress) {
      bar.update(progress.share_done, 1, progress.doing);
    });
  }
  note_left_out(options, recipe, summary.notes);
  if (options.is_json) {
    std::cout << to_json(options, recipe, summary).dump() << '\n';
  } else {
    std::printf("%s: %s\n", recipe.method, describe(recipe).c_str());
    print(options, summary);
  }
  return kExitOk;
}

std::string methods_in_words() {
  std::string text = "Methods:\n";
  for (const Recipe& recipe : recipes()) {
    const bool needs_text = !recipe.is_calibration_optional && !calibrated_parts(recipe).empty();
    text += str("  ", recipe.method, ": ", recipe.description, ".\n      ", describe(recipe),
                needs_text ? "; needs --calibrate" : "", "\n");
  }
  return text;
}

/// A flag with a value of yes or no, or nothing if it is not given.
void add_choice(CLI::App& app, const char* names, std::optional<bool>& value, const char* text) {
  app.add_flag_function(
      names, [&value](int64_t count) { value = count > 0; }, text);
}

void add_recipe_options(CLI::App& app, RecipeChanges& changes) {
  app.add_option("--bits", changes.bits, "Bits per weight");
  app.add_option("--group-size", changes.group_size, "Group size; -1: per-channel scales");
  add_choice(app, "--symmetric,!--asymmetric", changes.is_symmetric,
             "Quantize without zero points");
  add_choice(app, "--desc-act,!--no-desc-act", changes.has_act_order,
             "Quantize columns by descending activation (act-order)");
  add_choice(app, "--static-groups,!--no-static-groups", changes.has_static_groups,
             "Fix the scales of groups beforehand, so that columns keep their order in the file");
  app.add_option("--damp", changes.damp,
                 "Damping: fraction of the Hessian's mean diagonal that is added to it");
  app.add_option("--alpha", changes.alpha, "Strength of activation smoothing");
  app.add_option("--s8-share", changes.s8_share_max,
                 "Largest fraction of activation blocks in 8 bits");
  app.add_option("--kv-bits", changes.kv_bits,
                 "Bits of the KV cache that the checkpoint requests: 16, 8, 4");
  add_choice(app, "--static-activations,!--dynamic-activations", changes.is_activation_static,
             "Fix activation scales from the calibration text");
  app.add_flag("--per-tensor", changes.is_per_tensor,
               "FP8: per-tensor instead of per-channel scales");
  app.add_option("--without", changes.without, "Techniques of the method to leave out")
      ->delimiter(',');
}

}  // namespace

Run add_quantize(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand("quantize", "Make a low-precision checkpoint");
  auto options = std::make_shared<QuantizeOptions>();
  app.add_option("MODEL", options->model, "Directory of a checkpoint in full precision")
      ->required();
  app.add_option("--method", options->method, "Method, see below")->required();
  app.add_option("--out", options->out, "Directory to create; OUT.partial until it is complete")
      ->required();
  CLI::Option* text = app.add_option(
      "--calibrate", options->text,
      "Calibration text, UTF-8, for methods that need one; others measure errors on it");
  add_recipe_options(app, options->changes);
  app.add_option("--override", options->overrides,
                 "PATTERN=none or PATTERN=bits=8,group=64,sym: layers that differ; the first "
                 "that matches counts");
  app.add_option("--num-samples", options->num_samples, "Calibration sequences")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->needs(text)
      ->capture_default_str();
  app.add_option("--sample-length", options->sample_length, "Tokens per calibration sequence")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->needs(text)
      ->capture_default_str();
  app.add_option("--worst", options->num_worst, "Number of worst layers to list")
      ->capture_default_str();
  add_threads_option(app, options->threads);
  app.add_flag("--json", options->is_json, "One JSON object instead of text");
  app.footer(methods_in_words() + kExamples);
  return [options] { return run_quantize(*options); };
}

}  // namespace halley::cli
