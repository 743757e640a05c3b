// Slow, f64, obvious: the definition of attention for tests.
#pragma once

#include <span>

#include "halley/core/matrix.h"
#include "halley/kernels/attention/attention.h"
#include "halley/kernels/kv/kv_cache_view.h"

namespace halley {

/// Computes what paged_attention() does, over the same cache.
void paged_attention_reference(const AttentionProblem& problem, const KvLayerView& cache,
                               std::span<const BatchSequence> sequences, ConstMatrix q, Matrix out);

}  // namespace halley
