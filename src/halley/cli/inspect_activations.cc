#include "halley/cli/inspect_activations.h"

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/model_options.h"
#include "halley/cli/progress.h"
#include "halley/core/thread_pool.h"
#include "halley/quant/inspection/activation_json.h"
#include "halley/quant/inspection/activation_svg.h"
#include "halley/quant/methods/calibration_text.h"

namespace halley::cli {
namespace {

constexpr size_t kWorstOnPage = 6;

void create_folder(const std::string& out) {
  std::error_code error;
  if (std::filesystem::exists(out, error) && !std::filesystem::is_empty(out, error)) {
    throw InputError(str("--out ", out, ": expected a folder that does not exist or is empty, got ",
                         "another. Name a new one."));
  }
  std::filesystem::create_directories(out, error);
  if (!error && std::filesystem::is_directory(out, error)) return;
  throw InputError(str("--out ", out, ": expected a folder that can be created, got: ",
                       error.message(), ". Name another."));
}

void write_folder(const ActivationReport& report, const ActivationOptions& options,
                  const std::string& model) {
  const std::filesystem::path out = options.out;
  write_activations(report, model, options.text, out / "activations.json");
  std::vector<const ActivationSite*> worst;
  for (const size_t i : worst_sites(report.sites, kWorstOnPage)) worst.push_back(&report.sites[i]);
  write_picture(render_sites(worst, str(model, ": the worst of ", report.sites.size(), " sites")),
                out / "worst.svg");
  if (options.layers.empty()) return;
  for (const ActivationSite& site : report.sites) {
    const ActivationSite* one[] = {&site};
    write_picture(render_sites(one, str(model, ": ", site.name)), out / (site.name + ".svg"));
  }
}

}  // namespace

void add_activation_options(CLI::App& app, ActivationOptions& options) {
  CLI::Option* flag = app.add_flag("--activations", options.is_asked, kActivationsDescription);
  CLI::Option* text =
      app.add_option("--calibrate", options.text, "With --activations: the calibration text, UTF-8")
          ->needs(flag);
  flag->needs(text);
  app.add_option("--out", options.out,
                 "With --activations: folder for activations.json and pictures (SVG)")
      ->needs(flag);
  app.add_option("--layers", options.layers,
                 "With --activations: layers, as 0,3-5, with a picture of each site (default: all, "
                 "with one page of the worst sites)")
      ->needs(flag);
  add_sample_options(app, options.num_samples, options.sample_length, flag);
  app.add_option("--worst", options.num_worst, "Number of worst sites to list")
      ->needs(flag)
      ->capture_default_str();
}

ActivationReport inspect_activations(const ActivationOptions& options, const ModelOptions& model,
                                     const ModelFiles& files, const ModelPlan& plan, int threads) {
  if (plan.format != "none" || model.load_format == "dummy") {
    throw InputError(str("--activations: expected a checkpoint in full precision, got ",
                         model.load_format == "dummy" ? "dummy weights" : "format " + plan.format,
                         ". Name the checkpoint that it was made from."));
  }
  const std::vector<int64_t> layers = parse_layers(options.layers, plan.config.num_layers);
  const CalibrationTokens tokens =
      read_calibration_text(model.model, options.text, options.num_samples, options.sample_length);
  if (!options.out.empty()) create_folder(options.out);
  ThreadPool pool(num_threads_of(threads));
  ExecContext context{pool};
  ActivationReport report;
  {
    ProgressBar bar("measuring");
    report = measure_activations(context, files.config, *files.source, tokens, layers,
                                 [&](int64_t done, int64_t all) {
                                   bar.update(static_cast<double>(done), static_cast<double>(all));
                                 });
  }
  if (!options.out.empty()) write_folder(report, options, files.source->description());
  return report;
}

void print_activations(const ActivationReport& report, const ActivationOptions& options) {
  std::printf("%lld tokens; the worst of %zu sites:\n",
              static_cast<long long>(report.num_sequences * report.sequence_length),
              report.sites.size());
  for (const size_t i : worst_sites(report.sites, options.num_worst)) {
    const ActivationSite& site = report.sites[i];
    std::printf("%s: %s\n", site.name.c_str(), reason_of(site).c_str());
  }
  for (const std::string& note : report.notes) std::printf("note: %s\n", note.c_str());
}

}  // namespace halley::cli
