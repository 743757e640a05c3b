// The PTX instructions that decode attention has beside those of all attention kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/warp_instructions.cuh"

namespace halley::attention {

/// The transpose of an 8 x 8 matrix of 16-bit elements: lane 4g + c has row g, columns 2c, 2c + 1.
__device__ inline uint32_t transpose_matrix(uint32_t row) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(row));
  return result;
}

/// The barrier gets this thread's arrival when all copies that start_copy() has started are there.
__device__ inline void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// a * b for two f16.
__device__ inline uint32_t multiply_f16x2(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

}  // namespace halley::attention
