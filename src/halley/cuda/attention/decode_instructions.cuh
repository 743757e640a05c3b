// PTX instructions that only decode attention uses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/warp_instructions.cuh"

namespace halley::attention {

/// Transposes an 8 x 8 matrix of 16-bit elements: lane 4g + c has row g, columns 2c, 2c + 1.
__device__ inline uint32_t movmatrix_trans(uint32_t row) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(row));
  return result;
}

/// The mbarrier gets this thread's arrival when all its cp.async copies so far have completed.
__device__ inline void cp_async_mbarrier_arrive_noinc(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace halley::attention
