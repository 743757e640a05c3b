// The engine's configuration with its defaults filled in, and the KV cache that fits it.
#pragma once

#include <cstdint>

#include "halley/engine/engine.h"
#include "halley/engine/scheduler.h"
#include "halley/kernels/kv/kv_cache_view.h"

namespace halley {

struct EnginePlan {
  EngineConfig config;  // nothing is 0 or absent any more
  KvPageLayout layout;
  int64_t num_pages = 0;
  int64_t max_num_prompt_logits = 0;  // rows of a step that score prompts: 64 MiB of logits
};

/// Throws InputError where a field is out of range, where max_model_len exceeds the model's, or
/// where the cache has no room for one sequence of max_model_len. `memory_bytes`: what the machine
/// has free; a quarter of it is the default's limit.
EnginePlan plan_engine(const EngineConfig& config, const ModelShape& model, int64_t memory_bytes);

SchedulerConfig scheduler_config(const EnginePlan& plan);

}  // namespace halley
