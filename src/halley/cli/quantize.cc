// `halley quantize`: makes a low-precision checkpoint from one in full precision.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/command.h"
#include "halley/cli/model_options.h"
#include "halley/cli/named_model.h"
#include "halley/cli/progress.h"
#include "halley/core/thread_pool.h"
#include "halley/hub/pull.h"
#include "halley/json/json.h"
#include "halley/quant/methods/quantize_checkpoint.h"

namespace halley::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  halley quantize models/demo-21m --method rtn --out build/demo-w4
  halley quantize models/demo-21m --method rtn --bits 8 --override '*.down_proj=none' \
    --out build/demo-w8 --calibrate testdata/text/wikitext2_valid.txt
)";

struct QuantizeCommand {
  QuantizeOptions quantize;
  hub::LookupOptions lookup;
  int threads = 0;
  size_t num_worst = 10;
  bool is_json = false;
};

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

void print(const QuantizeCommand& options, const QuantizeSummary& summary) {
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
  std::printf("\n%s: %s from %s, %.1f s", options.quantize.out.c_str(),
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

int run_quantize(const QuantizeCommand& options) {
  ThreadPool pool(num_threads_of(options.threads));
  ExecContext context{pool};
  QuantizedCheckpoint result;
  {
    ProgressBar bar("quantizing");
    result = quantize_checkpoint(context, options.quantize, [&](const QuantizeProgress& progress) {
      bar.update(progress.share_done, 1, progress.doing);
    });
  }
  if (options.is_json) {
    std::cout << to_json(result).dump() << '\n';
  } else {
    std::printf("%s: %s\n", result.recipe.method, describe(result.recipe).c_str());
    print(options, result.summary);
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
  auto options = std::make_shared<QuantizeCommand>();
  QuantizeOptions& quantize = options->quantize;
  app.add_option("MODEL", quantize.model,
                 "Directory, or ORG/NAME, of a checkpoint in full precision")
      ->required();
  add_lookup_options(app, options->lookup, /*downloads=*/true);
  app.add_option("--method", quantize.method, "Method, see below")->required();
  app.add_option("--out", quantize.out, "Directory to create; OUT.partial until it is complete")
      ->required();
  CLI::Option* text = app.add_option(
      "--calibrate", quantize.text,
      "Calibration text, UTF-8, for methods that need one; others measure errors on it");
  add_recipe_options(app, quantize.changes);
  app.add_option("--override", quantize.overrides,
                 "PATTERN=none or PATTERN=bits=8,group=64,sym: layers that differ; the first "
                 "that matches counts");
  add_sample_options(app, quantize.num_samples, quantize.sample_length, text);
  app.add_option("--worst", options->num_worst, "Number of worst layers to list")
      ->capture_default_str();
  add_threads_option(app, options->threads);
  app.add_flag("--json", options->is_json, "One JSON object instead of text");
  app.footer(methods_in_words() + kExamples);
  return [options] {
    options->quantize.model = find_model(options->quantize.model, options->lookup);
    return run_quantize(*options);
  };
}

}  // namespace halley::cli
