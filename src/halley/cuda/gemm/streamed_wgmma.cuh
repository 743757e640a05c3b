// wgmma of products with streamed weights: A (64 weights' rows) and B (tokens) from shared memory.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// sums[64 x kTokens] += a * b over 32 bytes of inputs; without the sums' old values where `keeps`
/// is 0. `a` and `b` are descriptors of rows of inputs, swizzled by 128 bytes. Fragments as in the
/// PTX ISA, wgmma; asynchronous: fence, close and wait around it.

#define HALLEY_STREAM_8(INSTRUCTION, TAIL, CONSTRAINT)                         \
  asm volatile(                                                                \
      "{.reg .pred p; setp.ne.b32 p, %6, 0;\n"                                 \
      "wgmma.mma_async.sync.aligned.m64n8" INSTRUCTION                         \
      " "                                                                      \
      "{%0,%1,%2,%3}"                                                          \
      ", %4, %5, p" TAIL ";}"                                                  \
      : CONSTRAINT(d[0]), CONSTRAINT(d[1]), CONSTRAINT(d[2]), CONSTRAINT(d[3]) \
      : "l"(a), "l"(b), "r"(keeps))

#define HALLEY_STREAM_16(INSTRUCTION, TAIL, CONSTRAINT)                                           \
  asm volatile(                                                                                   \
      "{.reg .pred p; setp.ne.b32 p, %10, 0;\n"                                                   \
      "wgmma.mma_async.sync.aligned.m64n16" INSTRUCTION                                           \
      " "                                                                                         \
      "{%0,%1,%2,%3,%4,%5,%6,%7}"                                                                 \
      ", %8, %9, p" TAIL ";}"                                                                     \
      : CONSTRAINT(d[0]), CONSTRAINT(d[1]), CONSTRAINT(d[2]), CONSTRAINT(d[3]), CONSTRAINT(d[4]), \
        CONSTRAINT(d[5]), CONSTRAINT(d[6]), CONSTRAINT(d[7])                                      \
      : "l"(a), "l"(b), "r"(keeps))

#define HALLEY_STREAM_32(INSTRUCTION, TAIL, CONSTRAINT)                                           \
  asm volatile(                                                                                   \
      "{.reg .pred p; setp.ne.b32 p, %18, 0;\n"                                                   \
      "wgmma.mma_async.sync.aligned.m64n32" INSTRUCTION                                           \
      " "                                                                                         \
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"                                   \
      ", %16, %17, p" TAIL ";}"                                                                   \
      : CONSTRAINT(d[0]), CONSTRAINT(d[1]), CONSTRAINT(d[2]), CONSTRAINT(d[3]), CONSTRAINT(d[4]), \
        CONSTRAINT(d[5]), CONSTRAINT(d[6]), CONSTRAINT(d[7]), CONSTRAINT(d[8]), CONSTRAINT(d[9]), \
        CONSTRAINT(d[10]), CONSTRAINT(d[11]), CONSTRAINT(d[12]), CONSTRAINT(d[13]),               \
        CONSTRAINT(d[14]), CONSTRAINT(d[15])                                                      \
      : "l"(a), "l"(b), "r"(keeps))

#define HALLEY_STREAM_64(INSTRUCTION, TAIL, CONSTRAINT)                                           \
  asm volatile(                                                                                   \
      "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"                                                   \
      "wgmma.mma_async.sync.aligned.m64n64" INSTRUCTION                                           \
      " "                                                                                         \
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"                                    \
      ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"                         \
      ", %32, %33, p" TAIL ";}"                                                                   \
      : CONSTRAINT(d[0]), CONSTRAINT(d[1]), CONSTRAINT(d[2]), CONSTRAINT(d[3]), CONSTRAINT(d[4]), \
        CONSTRAINT(d[5]), CONSTRAINT(d[6]), CONSTRAINT(d[7]), CONSTRAINT(d[8]), CONSTRAINT(d[9]), \
        CONSTRAINT(d[10]), CONSTRAINT(d[11]), CONSTRAINT(d[12]), CONSTRAINT(d[13]),               \
        CONSTRAINT(d[14]), CONSTRAINT(d[15]), CONSTRAINT(d[16]), CONSTRAINT(d[17]),               \
        CONSTRAINT(d[18]), CONSTRAINT(d[19]), CONSTRAINT(d[20]), CONSTRAINT(d[21]),               \
        CONSTRAINT(d[22]), CONSTRAINT(d[23]), CONSTRAINT(d[24]), CONSTRAINT(d[25]),               \
        CONSTRAINT(d[26]), CONSTRAINT(d[27]), CONSTRAINT(d[28]), CONSTRAINT(d[29]),               \
        CONSTRAINT(d[30]), CONSTRAINT(d[31])                                                      \
      : "l"(a), "l"(b), "r"(keeps))

#define HALLEY_STREAM_TYPE(NAME, SUM, INSTRUCTION, TAIL, CONSTRAINT)                               \
  struct NAME {                                                                                    \
    using Sum = SUM;                                                                               \
    template <int kTokens>                                                                         \
    static __device__ __forceinline__ void multiply(Sum (&d)[kTokens / 2], uint64_t a, uint64_t b, \
                                                    int keeps) {                                   \
      if constexpr (kTokens == 8) HALLEY_STREAM_8(INSTRUCTION, TAIL, CONSTRAINT);                  \
      if constexpr (kTokens == 16) HALLEY_STREAM_16(INSTRUCTION, TAIL, CONSTRAINT);                \
      if constexpr (kTokens == 32) HALLEY_STREAM_32(INSTRUCTION, TAIL, CONSTRAINT);                \
      if constexpr (kTokens == 64) HALLEY_STREAM_64(INSTRUCTION, TAIL, CONSTRAINT);                \
    }                                                                                              \
  }

// The numbers behind the predicate: signs of A and B, and of 16 bits whether they are transposed.
HALLEY_STREAM_TYPE(F16Stream, float, "k16.f32.f16.f16", ", 1, 1, 0, 0", "+f");
HALLEY_STREAM_TYPE(Bf16Stream, float, "k16.f32.bf16.bf16", ", 1, 1, 0, 0", "+f");
HALLEY_STREAM_TYPE(E4m3Stream, float, "k32.f32.e4m3.e4m3", ", 1, 1", "+f");
HALLEY_STREAM_TYPE(S8Stream, int, "k32.s32.s8.s8", "", "+r");

#undef HALLEY_STREAM_TYPE
#undef HALLEY_STREAM_8
#undef HALLEY_STREAM_16
#undef HALLEY_STREAM_32
#undef HALLEY_STREAM_64

}  // namespace halley::cuda
