// The arguments of the classes that load a model, and their checks.
#pragma once

#include <cstdint>
#include <string>

#include "halley/engine/engine.h"
#include "halley/models/options/model_options.h"

namespace halley::python {

inline constexpr int64_t kThreadsMax = 1024;

/// The arguments of halley.LLM and halley.eval.Model, with their names.
struct SessionOptions {
  std::string model;
  std::string chat_template;              // a file; empty: the model's own
  std::string tool_call_parser = "auto";  // tool_parser_names()
  std::string device = "auto";            // HALLEY_DEVICE replaces "auto"
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string precision = "full";
  std::string quantization;  // ModelOptions::quantization
  int64_t max_model_len = 0, max_num_seqs = 0, max_num_batched_tokens = 0;  // 0: EngineConfig's
  int64_t kv_cache_memory_bytes = 0;
  int tensor_parallel_size = 1, pipeline_parallel_size = 1;
  int threads = 0;
  double gpu_memory_utilization = 0.9;
  bool enable_prefix_caching = true;
  bool enable_lora = false;  // a model that takes no adapters is an error
  bool enable_expert_parallel = false;
  bool tune = false;
};

/// Throws InputError that names the argument, unless min <= value <= max.
void check_range(const char* name, int64_t value, int64_t min, int64_t max);

/// Checks the options and throws InputError that names the first wrong one.
ModelOptions model_options_of(const SessionOptions& options);
EngineConfig engine_config_of(const SessionOptions& options);

/// Loads a model with all its ranks in this process. Throws as load_model() and choose_device().
LoadedModel load_model_of(const ModelOptions& options);

}  // namespace halley::python
