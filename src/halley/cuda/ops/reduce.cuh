// Reductions over a warp or a CTA. The number of threads alone decides the order.
#pragma once

namespace halley::cuda {

inline constexpr int kWarpThreads = 32;

__device__ inline float warp_sum(float x) {
  for (int step = kWarpThreads / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0U, x, step);
  return x;
}

__device__ inline float warp_max(float x) {
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(~0U, x, step));
  }
  return x;
}

/// The sum over all threads of the CTA, in every thread. `scratch` [32] in shared memory may be
/// reused when it returns. The number of threads is a multiple of 32.
__device__ inline float cta_sum(float x, float* scratch) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpThreads;
  x = warp_sum(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = warp_sum(lane < num_warps ? scratch[lane] : 0.0f);
  __syncthreads();
  return x;
}

}  // namespace halley::cuda
