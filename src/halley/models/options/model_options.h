// The options of a model that runs, whoever reads them, and the steps from them to a loaded model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/core/exec_context.h"
#include "halley/hub/pull.h"
#include "halley/models/all/load_model.h"
#include "halley/models/base/causal_lm.h"

namespace halley {

/// Limits --tensor-parallel-size and --pipeline-parallel-size.
inline constexpr int kRanksMax = 256;

struct RankOptions {
  int tensor_parallel_size = 0;    // 0: as many as mpirun or srun started for each stage, else 1
  int pipeline_parallel_size = 1;  // stages
  double timeout_s = 60;
  bool has_whole_experts = false;
  /// False: where the ranks are processes, the model is whole in this one.
  bool divides_among_processes = true;
};

struct ModelOptions {
  std::string model;
  hub::LookupOptions lookup = {};    // of a model that is named ORG/NAME, for hub::find_model()
  std::string load_format = "auto";  // auto, dummy
  std::string config_name;           // a built-in shape, for dummy weights
  std::string dtype = "auto";        // dtype of dummy weights; on a GPU, of activations
  std::string quant_config;          // for dummy weights: JSON or a file
  std::string quantization;          // at load, a method of quant/at_load; "": none
  std::vector<std::string> quant_overrides;
  std::vector<std::string> required_kernels;
  std::string device = "auto";  // auto, cpu, cuda, cuda:N
  double gpu_memory_utilization = 0.9;
  bool is_batch_invariant = false;  // only on a GPU
  std::string tuned_plans;          // only on a GPU: a file
  bool tune = false;                // only on a GPU
  int threads = 0;                  // 0: all usable cores
  std::string kv_dtype = "auto";
  int64_t max_model_len = 0;
  bool has_self_check = true;
  std::string precision = "full";  // full, low
  RankOptions ranks = {};
};

/// Empty for a name that ModelOptions::device may have, else what was expected.
std::string device_name_error(const std::string& device);

/// The device on which a model will run.
struct DeviceChoice {
  std::string device = "cpu";  // or "cuda"
  int gpu_ordinal = 0;
  std::string why_not_gpu = {};  // why "auto" chose the CPU in a build with CUDA
};
/// Resolves --device. Throws UnsupportedError or DeviceError if it names a GPU that cannot be used.
DeviceChoice choose_device(const std::string& device);

/// The threads of ModelOptions::threads.
int num_threads_of(int threads);

/// The configuration and the headers of the weights; no weight is loaded yet.
struct ModelFiles {
  HfConfig config;
  QuantConfig quant;
  std::unique_ptr<TensorSource> source;
};
ModelFiles open_model_files(const ModelOptions& options);

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

/// Loads what the options say into `context`: load_here(), or the same with processes as ranks.
using LoadStep = std::function<LoadedDecoder(ExecContext& context, const ModelFiles& files,
                                             const LoadOptions& load)>;

/// Opens the files, divides the threads among `num_local_ranks` ranks and loads by `step`. Throws
/// as open_model_files() and `step` do.
LoadedModel load_model_by(const ModelOptions& options, const DeviceChoice& device,
                          int num_local_ranks, const LoadStep& step);

/// kLow if the options ask for it and a layer of the plan has low precision. Throws InputError
/// where no layer has.
Precision precision_of(const ModelOptions& options, const ModelPlan& plan);

/// The ranks of this process alone, 1 or more.
int num_thread_ranks(const RankOptions& options);
/// Before this process first uses CUDA, where it will have several ranks.
void prepare_thread_ranks(int num_ranks);
/// Loads with all ranks as threads of this process.
LoadedDecoder load_here(ExecContext& context, const RankOptions& options, const ModelFiles& files,
                        const LoadProgress& progress, const LoadOptions& load);

}  // namespace halley
