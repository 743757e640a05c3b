// Launches the decode kernel's instances of one type.
#pragma once

#include <cuda_runtime_api.h>

#include "halley/cuda/attention/decode_attention.cuh"
#include "halley/cuda/attention/decode_kernels.h"
#include "halley/cuda/runtime/cuda_check.h"

namespace halley::attention {

template <KvDType kType, int kHeadDim>
void launch_decode_instance(const DecodeParams& params, int num_multiprocessors,
                            cudaStream_t stream) {
  using Shape = DecodeShape<kType, kHeadDim>;
  const auto kernel = decode_kernel<kType, kHeadDim>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Shape::kSharedBytes),
             "shared memory of decode_attention");
  kernel<<<static_cast<unsigned>(Shape::kBlocks * num_multiprocessors), kDecodeThreads,
           Shape::kSharedBytes, stream>>>(params);
  check_launch("decode_attention");
}

template <KvDType kType>
void launch_decode_type(const DecodeParams& params, int num_multiprocessors, cudaStream_t stream) {
  switch (padded_head_dim(params.rows.head_dim)) {
    case 64:
      return launch_decode_instance<kType, 64>(params, num_multiprocessors, stream);
    case 128:
      return launch_decode_instance<kType, 128>(params, num_multiprocessors, stream);
    default:
      return launch_decode_instance<kType, 256>(params, num_multiprocessors, stream);
  }
}

}  // namespace halley::attention
