// Matrix multiplication by a warp: mma.sync.
//
// acc: [16, 8] += a: [16, K] * b: [K, 8], K = 16 for elements of 16 bits, 32 for 8 bits, 64 for 4
// bits, 256 for 1 bit. A register has consecutive elements along K. Lane 4g + c has of
//   a: rows g and g + 8 alternating, registers c of the first half of K, then of the second;
//   b: column g, register c of the first half of K, then of the second;
//   acc: row g, columns 2c and 2c + 1, then row g + 8.
#pragma once

#include <cstdint>

namespace halley::ptx {

// Shape and types as the instruction names them; mma_sync() calls what is in these. The text is
// literal, and accumulators that are added to are operands in place: otherwise kernels had other
// registers, and more spills (README.md).
#define HALLEY_MMA(NAME, ACCUMULATOR, c_type, INSTRUCTION)                                         \
  struct NAME {                                                                                    \
    using Accumulator = ACCUMULATOR;                                                               \
    static __device__ __forceinline__ void add(Accumulator* acc, const uint32_t* a, uint32_t b0,   \
                                               uint32_t b1) {                                      \
      asm("mma.sync.aligned." INSTRUCTION " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
          : "+" c_type(acc[0]), "+" c_type(acc[1]), "+" c_type(acc[2]), "+" c_type(acc[3])         \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                         \
    }                                                                                              \
    static __device__ __forceinline__ void add_to(const Accumulator (&c)[4], Accumulator* d,       \
                                                  const uint32_t* a, uint32_t b0, uint32_t b1) {   \
      asm("mma.sync.aligned." INSTRUCTION                                                          \
          " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"                             \
          : "=" c_type(d[0]), "=" c_type(d[1]), "=" c_type(d[2]), "=" c_type(d[3])                 \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), c_type(c[0]),            \
            c_type(c[1]), c_type(c[2]), c_type(c[3]));                                             \
    }                                                                                              \
  }
HALLEY_MMA(MmaF16, float, "f", "m16n8k16.row.col.f32.f16.f16.f32");
HALLEY_MMA(MmaBf16, float, "f", "m16n8k16.row.col.f32.bf16.bf16.f32");
HALLEY_MMA(MmaS8, int32_t, "r", "m16n8k32.row.col.s32.s8.s8.s32");
HALLEY_MMA(MmaU8S8, int32_t, "r", "m16n8k32.row.col.s32.u8.s8.s32");
/// On Hopper the compiler makes mma of s8 of it: exact, and slow.
HALLEY_MMA(MmaS4, int32_t, "r", "m16n8k64.row.col.s32.s4.s4.s32");
/// Counts the bits that are set in both.
HALLEY_MMA(MmaB1AndPopc, int32_t, "r", "m16n8k256.row.col.s32.b1.b1.s32.and.popc");
#undef HALLEY_MMA

/// acc += a * b;  a: four registers.
template <class Mma>
__device__ __forceinline__ void mma_sync(typename Mma::Accumulator* acc, const uint32_t* a,
                                         uint32_t b0, uint32_t b1) {
  Mma::add(acc, a, b0, b1);
}
/// d = a * b + c.
template <class Mma>
__device__ __forceinline__ void mma_sync(typename Mma::Accumulator* d, const uint32_t* a,
                                         uint32_t b0, uint32_t b1,
                                         const typename Mma::Accumulator (&c)[4]) {
  Mma::add_to(c, d, a, b0, b1);
}

}  // namespace halley::ptx
