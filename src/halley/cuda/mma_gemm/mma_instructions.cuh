// The PTX instructions of these kernels that mixed_gemm has not: all are of compute capability 8.0.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// Starts the copy of 16 bytes, of which the first `num_bytes` (0 to 16) are read and the others
/// become zero. Both addresses are multiples of 16.
__device__ __forceinline__ void start_copy_16(uint32_t to, const void* from, int num_bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(num_bytes)
               : "memory");
}

/// Copies started since the last call become one group, possibly empty.
__device__ __forceinline__ void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most kNumLeft of the calling thread's newest groups are in flight.
template <int kNumLeft>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNumLeft) : "memory");
}

/// Four matrices of 8 rows of 16 bytes; lane i names row i % 8 of matrix i / 8. Lane 4g + c gets
/// bytes 4c .. 4c + 3 of row g of each.
__device__ __forceinline__ void load_four_matrices(uint32_t (&out)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}

/// sums[16 x 8] += a[16 x 64] b[64 x 8] of s4. Lane 4g + c has a: rows g, g + 8, g, g + 8, inputs
/// 8c .. 8c + 7 of the first and of the second 32; b: token g, the same inputs (PTX ISA,
/// "mma.m16n8k64"). On Hopper the compiler makes products of s8 of it: exact, and slow.
__device__ __forceinline__ void multiply_s4(int32_t (&sums)[4], const uint32_t* a, uint32_t b0,
                                            uint32_t b1) {
  asm("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace halley::cuda
