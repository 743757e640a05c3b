// Launches the decode kernel's instances of one cache type and size of teams.
#pragma once

#include <cuda_runtime_api.h>

#include "halley/cuda/attention/attention_plan.h"
#include "halley/cuda/attention/decode_attention.cuh"
#include "halley/cuda/attention/decode_kernels.h"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::attention {

template <KvDType kType, int kHeadDim, int kRows, int kTeamWarps>
void launch_decode_instance(const CudaContext& context, const DecodeParams& params) {
  using Shape = DecodeShape<kType, kHeadDim, kRows, kTeamWarps>;
  const auto kernel = decode_kernel<kType, kHeadDim, kRows, kTeamWarps>;
  launch_kernel(context, "decode_attention",
                {.grid = dim3(static_cast<unsigned>(Shape::kCtasPerSm * context.device.num_sms)),
                 .block = dim3(kDecodeThreads),
                 .shared_bytes = Shape::kSharedBytes},
                kernel, params);
}

template <KvDType kType, int kTeamWarps>
void launch_decode(const CudaContext& context, const DecodeParams& params) {
  switch (padded_head_dim(params.rows.head_dim)) {
    case 64:
      return launch_decode_instance<kType, 64, 8, kTeamWarps>(context, params);
    case 128:
      return decode_rows(params.rows.group_size, params.rows.head_dim) == 8
                 ? launch_decode_instance<kType, 128, 8, kTeamWarps>(context, params)
                 : launch_decode_instance<kType, 128, 16, kTeamWarps>(context, params);
    default:
      return launch_decode_instance<kType, 256, 8, kTeamWarps>(context, params);
  }
}

}  // namespace halley::attention
