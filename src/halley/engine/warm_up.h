// Steps of every size before the first request, of a model in several precisions.
#pragma once

#include "halley/engine/engine.h"
#include "halley/engine/kv_cache.h"
#include "halley/engine/request_times.h"
#include "halley/engine/step_planner.h"
#include "halley/models/base/step_runner.h"

namespace halley {

struct WarmUpLimits {
  int64_t num_pages = 0, page_tokens = 16;
  int64_t num_sequences = 0;     // of a step
  int64_t num_prefill_rows = 0;  // of a step, and of a sequence
  bool has_graphs = false;       // the model may capture one for each size
};

/// Runs decodes and prefills of several sizes at each level, so that `planner` knows their times,
/// and that no request waits for what the first step of a size does (captures of graphs). The cache
/// is not in use yet; its contents are undefined afterwards. Throws DeviceError.
void warm_up(StepRunner& runner, const KvCacheView& cache, const WarmUpLimits& limits,
             const EngineClock& clock, StepPlanner& planner);

}  // namespace halley
