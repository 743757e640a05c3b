// Launches of decode attention, one for each type of the cache and number of warps that share a
// work item: kDecodeWarps or 1.
#pragma once

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/kv/kv_dtype.h"

namespace halley::attention {

/// The instances are listed in CMakeLists.txt.
template <KvDType kType, int kTeamWarps>
void launch_decode(const CudaContext& context, const DecodeParams& params);

}  // namespace halley::attention
