// Launches of decode attention, one for each type of the cache; each is a source file of its own.
#pragma once

#include <cuda_runtime_api.h>

#include "halley/cuda/attention/attention_params.h"

namespace halley::attention {

void launch_decode_f16(const DecodeParams& params, int num_multiprocessors, cudaStream_t stream);
void launch_decode_bf16(const DecodeParams& params, int num_multiprocessors, cudaStream_t stream);
void launch_decode_fp8(const DecodeParams& params, int num_multiprocessors, cudaStream_t stream);
void launch_decode_int8(const DecodeParams& params, int num_multiprocessors, cudaStream_t stream);
void launch_decode_int4(const DecodeParams& params, int num_multiprocessors, cudaStream_t stream);

}  // namespace halley::attention
