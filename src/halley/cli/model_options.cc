#include "halley/cli/model_options.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <utility>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/cli/named_model.h"
#include "halley/cli/progress.h"
#include "halley/models/all/load_model.h"
#include "halley/quant/all/builtin_quant_configs.h"
#include "halley/quant/at_load/at_load.h"

namespace halley::cli {

std::string quant_config_names_in_words() {
  std::string text;
  for (const std::string& name : builtin_quant_config_names()) {
    text += str(text.empty() ? "" : ", ", name);
  }
  return text;
}

void add_source_options(CLI::App& app, ModelOptions& options, bool downloads) {
  app.add_option("MODEL", options.model, kModelDescription);
  add_lookup_options(app, options.lookup, downloads);
  app.add_option("--load-format", options.load_format,
                 "auto: the checkpoint's files; dummy: synthetic weights, for speed alone")
      ->check(CLI::IsMember({"auto", "dummy"}))
      ->capture_default_str();
  app.add_option(
      "--config", options.config_name,
      "With dummy weights: a built-in shape instead of MODEL (llama-1b, llama-3-8b, ...)");
  app.add_option(
         "--dtype", options.dtype,
         "With dummy weights: their type; on a GPU: that of activations (float16, bfloat16); auto: "
         "the checkpoint's")
      ->check(CLI::IsMember({"auto", "float16", "bfloat16", "float32", "half", "float"}))
      ->capture_default_str();
  app.add_option("--quant-config", options.quant_config,
                 str("With dummy weights: their quantization_config, a JSON object, a file or ",
                     quant_config_names_in_words()));
  std::vector<std::string> methods;
  for (const AtLoadMethod& method : at_load_methods()) methods.emplace_back(method.name);
  app.add_option("--quantization", options.quantization,
                 "Round weights in full precision while they are loaded, without calibration; "
                 "weight-only: activations stay as they are; a quantized checkpoint needs none")
      ->check(CLI::IsMember(methods));
  app.add_option(
         "--quant-override", options.quant_overrides,
         "PATTERN=none|{...}|FILE: layers whose format differs from the one that the "
         "checkpoint declares; PATTERN is a name, a glob or re:REGEX, the first that matches wins")
      ->allow_extra_args(false);
  app.add_option("--require-kernel", options.required_kernels,
                 "Fail unless every layer runs on one of these kernels (repeat, or separate by "
                 "commas)")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void add_device_option(CLI::App& app, ModelOptions& options, const std::string& without) {
  options.device = without == "auto" ? env_string("HALLEY_DEVICE").value_or(without) : without;
  app.add_option("--device", options.device,
                 "cpu; cuda or cuda:N: a GPU; auto: the GPU if there is one")
      ->check([](const std::string& text) { return device_name_error(text); })
      ->capture_default_str();
}

void add_threads_option(CLI::App& app, int& threads) {
  app.add_option("--threads", threads, "Threads; 0: all cores that the process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void add_sample_options(CLI::App& app, int64_t& num_samples, int64_t& sample_length,
                        CLI::Option* needed) {
  app.add_option("--num-samples", num_samples, "Calibration sequences")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->needs(needed)
      ->capture_default_str();
  app.add_option("--sample-length", sample_length, "Tokens per calibration sequence")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->needs(needed)
      ->capture_default_str();
}

void add_kv_option(CLI::App& app, const std::string& name, std::string& value,
                   const std::string& what) {
  app.add_option(name, value,
                 str(what,
                     ": f32, f16, bf16, int8, int4 or fp8; auto: the checkpoint's, else "
                     "that of the weights"))
      ->check([](const std::string& text) {
        if (text == "auto" || kv_dtype_from_name(text)) return std::string();
        return str("expected auto, f32, f16, bf16, int8, int4 or fp8, got ", quote(text));
      })
      ->capture_default_str();
}

void add_gpu_options(CLI::App& app, ModelOptions& options) {
  add_device_option(app, options, "auto");
  app.add_flag("--batch-invariant", options.is_batch_invariant,
               "On a GPU: a request and seed give the same tokens in any batch; slower (on the CPU "
               "this always holds)");
  CLI::Option* file = app.add_option(
      "--tuned-plans", options.tuned_plans,
      "On a GPU: measured plans of GEMMs, a file of halley tune. Default: the plans that --tune or "
      "halley tune kept for this GPU, those of the program for an H200 and H100s, and estimates "
      "for shapes that none of them has");
  app.add_flag("--tune", options.tune,
               "On a GPU: measure plans of the model's GEMMs that have none, before it is loaded, "
               "and keep them for later runs")
      ->excludes(file);
  app.add_option("--gpu-memory-utilization", options.gpu_memory_utilization,
                 "Fraction of the GPU's memory for weights, workspace and KV cache")
      ->check([](const std::string& text) {
        double part = 0;
        const bool is_number = CLI::detail::lexical_cast(text, part);
        if (is_number && part > 0 && part <= 1) return std::string();
        return str("expected above 0, at most 1, got ", quote(text));
      })
      ->capture_default_str();
}

void add_model_options(CLI::App& app, ModelOptions& options, bool downloads) {
  add_source_options(app, options, downloads);
  add_gpu_options(app, options);
  add_threads_option(app, options.threads);
  add_rank_options(app, options.ranks);
  add_kv_option(app, "--kv-dtype", options.kv_dtype, "Type of the KV cache");
  app.add_flag("--self-check,!--no-self-check", options.has_self_check,
               "At load, compare every kernel with the reference on its own weights (default: on)");
}

void add_precision_option(CLI::App& app, ModelOptions& options) {
  app.add_option("--precision", options.precision,
                 "full or low, for weights that hold both precisions; low is an error for others")
      ->check(CLI::IsMember({"full", "low"}))
      ->capture_default_str();
}

void add_length_option(CLI::App& app, ModelOptions& options) {
  app.add_option("--max-model-len", options.max_model_len,
                 "Maximum tokens of prompt and output; 0: the model's maximum")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
}

std::optional<KvDType> parse_kv_dtype(const std::string& name) { return kv_dtype_from_name(name); }

std::string kernels_in_words(const ModelPlan& plan) {
  std::map<std::string, int> num_weights;
  for (const ModelPart& part : plan.parts) {
    for (const LinearPlan& linear : part.plans) {
      for (const GemmKernel* kernel : {linear.kernel, linear.low_kernel}) {
        if (kernel != nullptr && plan.device == "cpu") ++num_weights[kernel->name];
      }
    }
    for (const GpuLinearPlan& linear : part.gpu_plans) ++num_weights[linear.kernel];
  }
  std::string text;
  for (const auto& [name, count] : num_weights) {
    text += str(text.empty() ? "" : ", ", name, " ", count);
  }
  return text;
}

namespace {

/// Names the device that the model runs on, and why it is no GPU.
std::string device_in_words(const LoadedModel& loaded, const DeviceChoice& device) {
  if (loaded.plan.device == "cpu") {
    return str("cpu", device.why_not_gpu.empty() ? "" : ", since ", device.why_not_gpu);
  }
  return str(loaded.model->device_name(), ", activations ", loaded.plan.activation_dtype);
}

constexpr size_t kWarningsShownMax = 8;

void print_report(const LoadedModel& loaded, const DeviceChoice& device) {
  const ModelPlan& plan = loaded.plan;
  const LoadTimes& times = loaded.times;
  const int num_ranks = plan.config.share.num_ranks * plan.config.share.num_stages;
  const size_t num_warnings = plan.warnings.size();
  for (size_t i = 0; i < std::min(num_warnings, kWarningsShownMax); ++i) {
    std::fprintf(stderr, "warning: %s\n", plan.warnings[i].c_str());
  }
  if (num_warnings > kWarningsShownMax) {
    std::fprintf(stderr, "warning: %zu more; `halley inspect` shows all\n",
                 num_warnings - kWarningsShownMax);
  }
  if (!plan.tuned_plans.empty()) {
    std::fprintf(stderr, "measured plans of GEMMs: %s\n", plan.tuned_plans.c_str());
  }
  std::fprintf(
      stderr,
      "loaded %s%s%s%s: %s in memory%s, %.0f %% of 16 bits; kernels %s; %.2f s (read %.2f, "
      "repack %.2f, self-check %.2f); device %s\n",
      plan.format.c_str(), plan.summary.empty() ? "" : " (", plan.summary.c_str(),
      plan.summary.empty() ? "" : ")", format_bytes(static_cast<double>(plan.packed_bytes)).c_str(),
      num_ranks == 1 ? "" : str(" of rank 0 of ", num_ranks).c_str(),
      100.0 * static_cast<double>(plan.packed_bytes) /
          static_cast<double>(std::max<size_t>(1, plan.f16_bytes)),
      kernels_in_words(plan).c_str(), loaded.load_seconds, times.read, times.pack, times.self_check,
      device_in_words(loaded, device).c_str());
}

}  // namespace

PrecisionMode precision_mode_of(const LoadedModel& loaded) {
  return loaded.context->precision == Precision::kLow ? PrecisionMode::kLow : PrecisionMode::kFull;
}

LoadedModel load_model_files(const ModelOptions& options) {
  prepare_local_ranks(options.ranks);
  const DeviceChoice device = choose_device(options.device);
  const auto load_shown = [&](ExecContext& context, const ModelFiles& files,
                              const LoadOptions& load) {
    ProgressBar bar("loading");
    const auto show = [&](size_t done, size_t total) {
      bar.update(static_cast<double>(done), static_cast<double>(total));
    };
    return load_divided(context, options.ranks, files, show, load);
  };
  LoadedModel loaded = load_model_by(options, device, num_local_ranks(options.ranks), load_shown);
  loaded.context->precision = precision_of(options, loaded.plan);
  print_report(loaded, device);
  return loaded;
}

}  // namespace halley::cli
