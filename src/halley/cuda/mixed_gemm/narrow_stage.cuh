// What the stages of the kernel for few tokens have in common.
#pragma once

#include "halley/cuda/mixed_gemm/narrow_arguments.h"

namespace halley::cuda {

/// Inputs that come with the weights, in a stage.
struct NarrowStagedInputs {
  __device__ __forceinline__ NarrowStagedInputs(const NarrowArguments&, uint8_t*, int, int) {}
  __device__ __forceinline__ void fetch() const {}
  __device__ __forceinline__ void provide(int, bool) const {}
};

/// What mma.sync has summed of a row of 16 outputs, to [token][sum_pitch] of a warp.
template <class Sum>
__device__ __forceinline__ void store_narrow_sums(const NarrowArguments& args, int lane,
                                                  const Sum (&totals)[4], int place, Sum* sums) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int token = lane % 4 * 2 + e % 2;
    if (token < args.M) {
      sums[token * args.narrow.sum_pitch + place + lane / 4 + e / 2 * 8] = totals[e];
    }
  }
}

}  // namespace halley::cuda
