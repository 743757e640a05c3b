// The options that all commands which run a model share, and the model that they load.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/cli/rank_options.h"
#include "halley/core/exec_context.h"
#include "halley/engine/engine.h"
#include "halley/models/all/load_model.h"
#include "halley/models/base/causal_lm.h"

namespace halley::cli {

struct ModelOptions {
  std::string model;
  std::string load_format = "auto";  // auto, dummy
  std::string config_name;           // a built-in shape, for dummy weights
  std::string dtype = "auto";        // dtype of dummy weights; on a GPU, of activations
  std::string quant_config;          // for dummy weights: JSON or a file
  std::vector<std::string> quant_overrides;
  std::vector<std::string> required_kernels;
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  double gpu_memory_utilization = 0.9;
  bool is_batch_invariant = false;  // only on a GPU
  std::string tuned_plans;          // only on a GPU: a file
  int threads = 0;                  // 0: all usable cores
  std::string kv_dtype = "auto";
  int64_t max_model_len = 0;
  bool has_self_check = true;
  std::string precision = "full";  // full, low
  RankOptions ranks = {};
};

/// The names that --quant-config takes: "fp8, w4a8, ...".
std::string quant_config_names_in_words();

/// Adds MODEL and the options that select the weights.
void add_source_options(CLI::App& app, ModelOptions& options);
/// Adds the source options and those of running the model.
void add_model_options(CLI::App& app, ModelOptions& options);
/// --precision, for commands that run every step in one precision.
void add_precision_option(CLI::App& app, ModelOptions& options);

/// Adds --device with its default; HALLEY_DEVICE replaces "auto".
void add_device_option(CLI::App& app, ModelOptions& options, const std::string& without);

/// --device and --gpu-memory-utilization.
void add_gpu_options(CLI::App& app, ModelOptions& options);

/// The device on which a model will run.
struct DeviceChoice {
  std::string device = "cpu";  // or "cuda"
  int gpu_ordinal = 0;
  std::string why_not_gpu = {};  // why "auto" chose the CPU in a build with CUDA
};
/// Resolves --device. Throws UnsupportedError or DeviceError if it names a GPU that cannot be used.
DeviceChoice choose_device(const std::string& device);

/// Adds --threads, and resolves it.
void add_threads_option(CLI::App& app, int& threads);
int num_threads_of(int threads);

/// The configuration and the headers of the weights; no weight is loaded yet.
struct ModelFiles {
  HfConfig config;
  QuantConfig quant;
  std::unique_ptr<TensorSource> source;
};
ModelFiles open_model_files(const ModelOptions& options);

/// The kernels of the plan and how many weights each has: "gemm_f16_hwy 1, gemm_w4a8_hwy 88". A
/// weight in two precisions counts for both of its kernels.
std::string kernels_in_words(const ModelPlan& plan);

/// The loader's options for the device, from the command line and HALLEY_KERNEL.
LoadOptions load_options_of(const ModelOptions& options, const ModelFiles& files,
                            const DeviceChoice& device = {});

/// A loaded model. The pool must outlive the model.
struct LoadedModel {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<ExecContext> context;
  std::unique_ptr<CausalLm> model;
  ModelPlan plan;
  LoadTimes times;
  GenerationConfig generation;
  double load_seconds = 0;
};
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
