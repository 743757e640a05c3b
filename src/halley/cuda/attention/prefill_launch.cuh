// Launches the prefill kernel's instances of one type.
#pragma once

#include <cuda_runtime_api.h>

#include "halley/cuda/attention/prefill_attention.cuh"
#include "halley/cuda/attention/prefill_kernels.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::attention {

template <KvDType kType, int kHeadDim>
void launch_prefill_instance(const PrefillParams& params, int num_items, cudaStream_t stream) {
  using Shape = PrefillShape<kType, kHeadDim>;
  const auto kernel = prefill_kernel<kType, kHeadDim>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Shape::kSharedBytes),
             "shared memory of prefill_attention");
  kernel<<<static_cast<unsigned>(num_items * params.rows.num_kv_heads), kPrefillThreads,
           Shape::kSharedBytes, stream>>>(params);
  check_launch("prefill_attention");
}

template <KvDType kType>
void launch_prefill_type(const PrefillParams& params, int num_items, cudaStream_t stream) {
  switch (padded_head_dim(params.rows.head_dim)) {
    case 64:
      return launch_prefill_instance<kType, 64>(params, num_items, stream);
    case 128:
      return launch_prefill_instance<kType, 128>(params, num_items, stream);
    default:
      return launch_prefill_instance<kType, 256>(params, num_items, stream);
  }
}

}  // namespace halley::attention
