// Launches of prefill attention, one for each type of the cache.
#pragma once

#include <cuda.h>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/kv/kv_dtype.h"

namespace halley::attention {

struct PrefillLaunch {
  PrefillParams params;  // num_items >= 1
  CUtensorMap map = {};  // page map where params.box_tokens > 0
};

/// The instances are listed in CMakeLists.txt.
template <KvDType kType>
void launch_prefill_type(const CudaContext& context, const PrefillLaunch& launch);

}  // namespace halley::attention
