// 8 x 8 matrices of 16-bit elements: from and to shared memory, and between lanes.
//
// A fragment of a matrix: lane 4g + c has row g, columns 2c and 2c + 1. For matrices in shared
// memory lane i passes the address of row i % 8 of matrix i / 8; a row has 16 bytes.
#pragma once

#include <cstdint>

namespace halley::ptx {

/// Element j of `out` is the fragment of matrix j.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&out)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}

/// Stores the transposes of two matrices; addresses of lanes below 16 count.
__device__ __forceinline__ void stmatrix_x2_trans(uint32_t row, uint32_t r0, uint32_t r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(row), "r"(r0),
               "r"(r1)
               : "memory");
}
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

/// The fragment of the transpose of a matrix.
__device__ __forceinline__ uint32_t movmatrix_trans(uint32_t fragment) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(fragment));
  return result;
}

}  // namespace halley::ptx
