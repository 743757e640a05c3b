// Launches of prefill attention, one for each type of the cache; each is a source file of its own.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "halley/cuda/attention/attention_params.h"

namespace halley::attention {

struct PrefillLaunch {
  PrefillParams params;  // num_items >= 1
  CUtensorMap map = {};  // page map where params.box_tokens > 0
  int num_sms = 1;
  cudaStream_t stream = nullptr;
};

void launch_prefill_f16(const PrefillLaunch& launch);
void launch_prefill_bf16(const PrefillLaunch& launch);
void launch_prefill_fp8(const PrefillLaunch& launch);
void launch_prefill_int8(const PrefillLaunch& launch);
void launch_prefill_int4(const PrefillLaunch& launch);

}  // namespace halley::attention
