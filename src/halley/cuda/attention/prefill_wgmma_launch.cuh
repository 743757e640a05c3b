// Launches the instances of one type of the prefill kernel of warpgroup products.
#pragma once

#include <cuda_runtime_api.h>

#include "halley/cuda/attention/prefill_kernels.h"
#include "halley/cuda/attention/prefill_wgmma.cuh"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::attention {

template <KvDType kType, int kHeadDim>
void launch_prefill_wgmma_instance(const PrefillParams& params, int num_items,
                                   cudaStream_t stream) {
  using Shape = WgmmaShape<kType, kHeadDim>;
  const auto kernel = prefill_wgmma_kernel<kType, kHeadDim>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Shape::kSharedBytes),
             "shared memory of prefill_wgmma");
  kernel<<<static_cast<unsigned>(num_items * params.rows.num_kv_heads), kWgmmaThreads,
           Shape::kSharedBytes, stream>>>(params);
  check_launch("prefill_wgmma");
}

template <KvDType kType>
void launch_prefill_wgmma_type(const PrefillParams& params, int num_items, cudaStream_t stream) {
  if (padded_head_dim(params.rows.head_dim) == 64) {
    return launch_prefill_wgmma_instance<kType, 64>(params, num_items, stream);
  }
  return launch_prefill_wgmma_instance<kType, 128>(params, num_items, stream);
}

}  // namespace halley::attention
