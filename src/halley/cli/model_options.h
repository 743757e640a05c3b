// The options that all commands which run a model share, and the model that they load.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "halley/cli/rank_options.h"
#include "halley/engine/engine.h"
#include "halley/models/all/load_model.h"
#include "halley/models/options/model_options.h"

namespace halley::cli {

/// The names that --quant-config takes: "fp8, w4a8, ...".
std::string quant_config_names_in_words();

/// Adds MODEL and the options that select the weights. `downloads` is the default of --download.
void add_source_options(CLI::App& app, ModelOptions& options, bool downloads = true);
/// Adds the source options and those of running the model.
void add_model_options(CLI::App& app, ModelOptions& options, bool downloads = true);
/// --precision, for commands that run every step in one precision.
void add_precision_option(CLI::App& app, ModelOptions& options);

/// Adds --device with its default; HALLEY_DEVICE replaces "auto".
void add_device_option(CLI::App& app, ModelOptions& options, const std::string& without);

/// --device and --gpu-memory-utilization.
void add_gpu_options(CLI::App& app, ModelOptions& options);

/// --threads.
void add_threads_option(CLI::App& app, int& threads);
/// The calibration sequences that are cut from a text; `needed` must be given with them.
void add_sample_options(CLI::App& app, int64_t& num_samples, int64_t& sample_length,
                        CLI::Option* needed);

/// The kernels of the plan and how many weights each has: "gemm_f16_hwy 1, gemm_w4a8_hwy 88". A
/// weight in two precisions counts for both of its kernels.
std::string kernels_in_words(const ModelPlan& plan);

/// Throws InputError for low precision if the model has none, and RankHasEnded.
/// Shows a progress bar, then warnings and a line about what was loaded, on stderr.
LoadedModel load_model_files(const ModelOptions& options);

/// The precision of an engine's requests, as --precision full or low chose it.
PrecisionMode precision_mode_of(const LoadedModel& loaded);

/// An option for the type of a KV cache, "auto" or a name.
void add_kv_option(CLI::App& app, const std::string& name, std::string& value,
                   const std::string& what);

/// Adds --max-model-len, for commands that run the engine.
void add_length_option(CLI::App& app, ModelOptions& options);

/// The type of --kv-dtype; nothing for "auto".
std::optional<KvDType> parse_kv_dtype(const std::string& name);

}  // namespace halley::cli
