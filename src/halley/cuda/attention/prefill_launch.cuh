// Launches the prefill kernel's instances of one cache type.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "halley/cuda/attention/prefill_attention.cuh"
#include "halley/cuda/attention/prefill_kernels.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/shared_bytes.h"

namespace halley::attention {

template <KvDType kType, int kHeadDim>
void launch_prefill_instance(const PrefillLaunch& launch) {
  using Shape = PrefillShape<kType, kHeadDim>;
  const auto kernel = prefill_kernel<kType, kHeadDim>;
  raise_shared_bytes(kernel, Shape::kSharedBytes, "prefill_attention");
  const int num_work_tiles = launch.params.num_items * launch.params.rows.num_kv_heads;
  const int num_ctas = std::min(num_work_tiles, launch.num_sms);
  kernel<<<static_cast<unsigned>(num_ctas), kPrefillThreads, Shape::kSharedBytes, launch.stream>>>(
      launch.params, launch.map);
  check_launch("prefill_attention");
}

template <KvDType kType>
void launch_prefill_type(const PrefillLaunch& launch) {
  switch (padded_head_dim(launch.params.rows.head_dim)) {
    case 64:
      return launch_prefill_instance<kType, 64>(launch);
    case 128:
      return launch_prefill_instance<kType, 128>(launch);
    default:
      return launch_prefill_instance<kType, 256>(launch);
  }
}

}  // namespace halley::attention
