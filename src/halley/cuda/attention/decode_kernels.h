// Launches of decode attention, one for each type of the cache.
#pragma once

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/kv/kv_dtype.h"

namespace halley::attention {

/// The instances are listed in CMakeLists.txt.
template <KvDType kType>
void launch_decode_type(const CudaContext& context, const DecodeParams& params);

}  // namespace halley::attention
