// The PTX instruction of these kernels that others have not, of compute capability 8.0.
#pragma once

#include <cstdint>

namespace halley::cuda {

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
