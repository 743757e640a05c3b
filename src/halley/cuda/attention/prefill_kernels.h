// Launches of prefill attention, one for each type of the cache; each is a source file of its own.
#pragma once

#include <cuda_runtime_api.h>

#include "halley/cuda/attention/attention_params.h"

namespace halley::attention {

/// num_items >= 1.
void launch_prefill_f16(const PrefillParams& params, int num_items, cudaStream_t stream);
void launch_prefill_bf16(const PrefillParams& params, int num_items, cudaStream_t stream);
void launch_prefill_fp8(const PrefillParams& params, int num_items, cudaStream_t stream);
void launch_prefill_int8(const PrefillParams& params, int num_items, cudaStream_t stream);
void launch_prefill_int4(const PrefillParams& params, int num_items, cudaStream_t stream);

/// The same with warpgroup products; head sizes up to 128, params.rule.scale > 0.
void launch_prefill_wgmma_f16(const PrefillParams& params, int num_items, cudaStream_t stream);
void launch_prefill_wgmma_bf16(const PrefillParams& params, int num_items, cudaStream_t stream);

}  // namespace halley::attention
