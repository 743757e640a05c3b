// Token ids that were not yet known when a step was queued.
#pragma once

#include <cstdint>

#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// ids[m] = last_tokens[slot_of_token(ids[m])] where it is below 0.
/// Shapes    ids [num_rows], last_tokens [number of slots], in device memory
void resolve_tokens(const CudaContext& context, const int32_t* last_tokens, int64_t num_rows,
                    int32_t* ids);

}  // namespace halley::cuda
