// Launches of prefill attention, one for each type of the cache.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "halley/cuda/attention/attention_params.h"
#include "halley/kernels/kv/kv_dtype.h"

namespace halley::attention {

struct PrefillLaunch {
  PrefillParams params;  // num_items >= 1
  CUtensorMap map = {};  // page map where params.box_tokens > 0
  int num_sms = 1;
  cudaStream_t stream = nullptr;
};

/// The instances are listed in CMakeLists.txt.
template <KvDType kType>
void launch_prefill_type(const PrefillLaunch& launch);

}  // namespace halley::attention
