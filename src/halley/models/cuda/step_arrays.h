// Fills the small arrays of a step on the host, as plan_arrays() lays them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "halley/kernels/kv/kv_cache_view.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/cuda/step_plan.h"

namespace halley::cuda {

/// Fills `arrays`, which holds plan_arrays(size).num_bytes. Rows past the batch's are padding:
/// token 0 at position 0, with no KV slot. `position_offset` is added to the rows of learned
/// positions. `logit_rows` has size.num_logit_rows.
void fill_arrays(const ForwardBatch& batch, std::span<const int32_t> logit_rows,
                 const KvPageLayout& layout, int64_t position_offset, const StepSize& size,
                 std::byte* arrays);

}  // namespace halley::cuda
