// The engine's configuration with its defaults filled in, and the KV cache that fits it.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "halley/engine/engine.h"
#include "halley/engine/scheduler.h"
#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/models/base/causal_lm.h"

namespace halley {

/// Fills in the defaults of the host or of a device for all fields but kv_bytes. Throws InputError
/// if a field is out of range or max_model_len exceeds the model's.
EngineConfig with_defaults(const EngineConfig& config, const ModelShape& model, bool is_on_host);

/// The limits on steps of an engine; `config` has its defaults.
StepLimits step_limits(const EngineConfig& config, const ModelShape& model);

/// Limits on the bytes of a KV cache.
struct KvRoom {
  int64_t bytes_default = 0;  // upper limit if the configuration gives none
  int64_t bytes_max = std::numeric_limits<int64_t>::max();  // upper limit in any case
};

/// By default a quarter of the machine's free memory; a configuration may ask for more.
KvRoom host_kv_room(int64_t memory_bytes);
/// All memory that CausalLm::prepare() has left, and no more.
KvRoom device_kv_room(int64_t memory_bytes);

struct EnginePlan {
  EngineConfig config;  // with all defaults filled in
  KvPageLayout layout;
  int64_t num_pages = 0;
  int64_t max_num_prompt_logits = 0;  // rows per step that score prompts: 64 MiB of logits
  int64_t num_stages = 1;             // of the model
};

/// `config` has its defaults. Throws InputError if kv_bytes exceeds the available memory, or if the
/// cache cannot hold one sequence of max_model_len.
EnginePlan plan_engine(const EngineConfig& config, const ModelShape& model, const KvRoom& limits);

/// The plan of an engine with this model, which sets memory for its steps aside. Throws as
/// with_defaults(), CausalLm::prepare() and plan_engine().
EnginePlan prepare_engine(CausalLm& model, const EngineConfig& config);

/// Throws InputError if an id is not in the vocabulary.
void check_eos_token_ids(const std::vector<int32_t>& ids, int64_t vocab_size);

SchedulerConfig scheduler_config(const EnginePlan& plan);

}  // namespace halley
