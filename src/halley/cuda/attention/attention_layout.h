// The page layout in the form of the kernels' parameters.
#pragma once

#include "halley/cuda/attention/attention_params.h"
#include "halley/kernels/attention/attention.h"

namespace halley::attention {

/// Offsets and sizes of the cache's rows.
PagedRows paged_rows(const AttentionProblem& problem, const KvLayerView& cache);

ScoreRule score_rule(const AttentionProblem& problem);

}  // namespace halley::attention
