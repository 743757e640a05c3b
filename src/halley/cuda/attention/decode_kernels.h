// Launches of decode attention, one for each type of the cache; each is a source file of its own.
#pragma once

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::attention {

void launch_decode_f16(const CudaContext& context, const DecodeParams& params);
void launch_decode_bf16(const CudaContext& context, const DecodeParams& params);
void launch_decode_fp8(const CudaContext& context, const DecodeParams& params);
void launch_decode_int8(const CudaContext& context, const DecodeParams& params);
void launch_decode_int4(const CudaContext& context, const DecodeParams& params);

}  // namespace halley::attention
