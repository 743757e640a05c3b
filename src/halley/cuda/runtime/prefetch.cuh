// Memory accesses that a kernel may issue before ptx::griddepcontrol_wait() (ptx/barrier.cuh).
//
// Norms, MLP activations, rotations and the first operations of a step have few CTAs, and mostly
// wait for loads. They trigger launch_dependents first of all, so that the next GEMM's weights are
// in flight while they run. Before its own wait a kernel knows nothing about the earlier kernels,
// so it reads only constants; data that kernels wrote long ago it prefetches to L2, from which the
// weights in between have evicted it.
#pragma once

#include <cstdint>

#include "halley/cuda/ptx/memory.cuh"

namespace halley {

/// Loads four constants, 16-byte aligned. ptxas would move a weaker load after the wait.
__device__ __forceinline__ float4 load_constants(const float* from) {
  uint32_t words[4];
  ptx::ld_global<ptx::RelaxedGpu, 4>(from, words);
  return {__uint_as_float(words[0]), __uint_as_float(words[1]), __uint_as_float(words[2]),
          __uint_as_float(words[3])};
}

}  // namespace halley
