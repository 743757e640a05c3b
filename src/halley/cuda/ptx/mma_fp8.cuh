// Matrix multiplication of FP8 by a warp: mma.sync, for compute capability 8.9 and above. Fragments
// are those of 8 bits in mma.cuh.
#pragma once

#include <cstdint>

namespace halley::ptx {

struct MmaE4m3 {
  using Accumulator = float;
  static __device__ __forceinline__ void add(float* acc, const uint32_t* a, uint32_t b0,
                                             uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

}  // namespace halley::ptx
