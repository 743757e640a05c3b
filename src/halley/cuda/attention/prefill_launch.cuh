// Launches the prefill kernel's instances of one cache type.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "halley/cuda/attention/prefill_attention.cuh"
#include "halley/cuda/attention/prefill_kernels.h"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::attention {

template <KvDType kType, int kHeadDim>
void launch_prefill_instance(const CudaContext& context, const PrefillLaunch& launch) {
  using Shape = PrefillShape<kType, kHeadDim>;
  const int num_work_tiles = launch.params.num_items * launch.params.rows.num_kv_heads;
  const int num_ctas = std::min(num_work_tiles, context.device.num_sms);
  launch_kernel(context, "prefill_attention",
                {.grid = dim3(static_cast<unsigned>(num_ctas)),
                 .block = dim3(kPrefillThreads),
                 .shared_bytes = Shape::kSharedBytes,
                 .pdl = false},
                prefill_kernel<kType, kHeadDim>, launch.params, launch.map);
}

template <KvDType kType>
void launch_prefill_type(const CudaContext& context, const PrefillLaunch& launch) {
  switch (padded_head_dim(launch.params.rows.head_dim)) {
    case 64:
      return launch_prefill_instance<kType, 64>(context, launch);
    case 128:
      return launch_prefill_instance<kType, 128>(context, launch);
    default:
      return launch_prefill_instance<kType, 256>(context, launch);
  }
}

}  // namespace halley::attention
