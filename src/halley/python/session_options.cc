#include "halley/python/session_options.h"

#include <cmath>

#include "halley/base/env.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/hub/pull.h"
#include "halley/precision/precision_policy.h"

namespace halley::python {
namespace {

// Prompts of one call may be many, and its caller has their memory already.
constexpr int64_t kQueuedMax = int64_t{1} << 20;
constexpr int64_t kCountMax = int64_t{1} << 30;

void check_options(const SessionOptions& options) {
  if (const std::string error = device_name_error(options.device); !error.empty()) {
    throw InputError(str("device: ", error, "."));
  }
  check_range("max_model_len", options.max_model_len, 0, kCountMax);
  check_range("max_num_seqs", options.max_num_seqs, 0, kCountMax);
  check_range("max_num_batched_tokens", options.max_num_batched_tokens, 0, kCountMax);
  check_range("kv_cache_memory_bytes", options.kv_cache_memory_bytes, 0, int64_t{1} << 50);
  check_range("tensor_parallel_size", options.tensor_parallel_size, 1, kRanksMax);
  check_range("pipeline_parallel_size", options.pipeline_parallel_size, 1, kRanksMax);
  check_range("threads", options.threads, 0, kThreadsMax);
  const double part = options.gpu_memory_utilization;
  if (!std::isfinite(part) || part <= 0 || part > 1) {
    throw InputError(str("gpu_memory_utilization: expected above 0, at most 1, got ", part, "."));
  }
}

}  // namespace

void check_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return;
  throw InputError(str(name, ": expected ", min, " to ", max, ", got ", value, "."));
}

ModelOptions model_options_of(const SessionOptions& options) {
  check_options(options);
  ModelOptions model;
  // Nothing is downloaded in a constructor that shows no progress: `halley pull` does that.
  model.model = hub::find_model(options.model, {}, {}).string();
  model.device = options.device;
  if (model.device == "auto") model.device = env_string("HALLEY_DEVICE").value_or("auto");
  model.dtype = options.dtype;
  model.gpu_memory_utilization = options.gpu_memory_utilization;
  model.tune = options.tune;
  model.threads = options.threads;
  model.max_model_len = options.max_model_len;
  model.kv_dtype = options.kv_cache_dtype;
  model.precision = options.precision;
  model.quantization = options.quantization;
  model.ranks.tensor_parallel_size = options.tensor_parallel_size;
  model.ranks.pipeline_parallel_size = options.pipeline_parallel_size;
  model.ranks.has_whole_experts = options.enable_expert_parallel;
  return model;
}

LoadedModel load_model_of(const ModelOptions& model) {
  const int num_ranks = num_thread_ranks(model.ranks);
  prepare_thread_ranks(num_ranks);
  return load_model_by(
      model, choose_device(model.device), num_ranks,
      [&](ExecContext& context, const ModelFiles& files, const LoadOptions& load_options) {
        return load_here(context, model.ranks, files, {}, load_options);
      });
}

EngineConfig engine_config_of(const SessionOptions& options) {
  EngineConfig config;
  config.max_num_queued = kQueuedMax;
  config.kv_bytes = options.kv_cache_memory_bytes;
  config.max_model_len = options.max_model_len;
  config.max_num_seqs = options.max_num_seqs;
  config.max_num_batched_tokens = options.max_num_batched_tokens;
  config.has_prefix_caching = options.enable_prefix_caching;
  if (options.kv_cache_dtype != "auto") {
    config.kv_dtype = kv_dtype_from_name(options.kv_cache_dtype);
    if (!config.kv_dtype) {
      throw InputError(str("kv_cache_dtype: expected auto, f32, f16, bf16, int8, int4 or fp8, got ",
                           quote(options.kv_cache_dtype), "."));
    }
  }
  const auto mode = precision_mode_from_name(options.precision);
  if (!mode) {
    throw InputError(
        str("precision: expected full, low or auto, got ", quote(options.precision), "."));
  }
  config.precision = *mode;
  return config;
}

}  // namespace halley::python
