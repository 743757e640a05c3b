// The engine's configuration with its defaults filled in, and the KV cache that fits it.
#pragma once

#include <cstdint>
#include <limits>

#include "halley/engine/engine.h"
#include "halley/engine/scheduler.h"
#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/models/base/causal_lm.h"

namespace halley {

/// `config` with nothing 0 or absent any more but kv_bytes, with the defaults of the host or of a
/// device. Throws InputError where a field is out of range, or where max_model_len exceeds the
/// model's.
EngineConfig with_defaults(const EngineConfig& config, const ModelShape& model, bool is_on_host);

/// The largest steps of an engine whose configuration has its defaults.
StepLimits step_limits(const EngineConfig& config, const ModelShape& model);

/// Bytes that a KV cache may take.
struct KvRoom {
  int64_t bytes_default = 0;  // at most, where the configuration says nothing
  int64_t bytes_max = std::numeric_limits<int64_t>::max();  // whatever it says
};

/// A quarter of what the machine has free by default; who asks for more may get it.
KvRoom host_kv_room(int64_t memory_bytes);
/// All that CausalLm::prepare() has left, and no more.
KvRoom device_kv_room(int64_t memory_bytes);

struct EnginePlan {
  EngineConfig config;  // nothing is 0 or absent any more
  KvPageLayout layout;
  int64_t num_pages = 0;
  int64_t max_num_prompt_logits = 0;  // rows of a step that score prompts: 64 MiB of logits
};

/// `config` has its defaults. Throws InputError where kv_bytes is more than there is, or where the
/// cache has no room for one sequence of max_model_len.
EnginePlan plan_engine(const EngineConfig& config, const ModelShape& model, const KvRoom& room);

SchedulerConfig scheduler_config(const EnginePlan& plan);

}  // namespace halley
