// Matrix multiplication by a warpgroup: wgmma.mma_async.
//
// d: [64, N] = scale_d * d + a: [64, K] * b: [K, N], scale_d 0 or 1; K is 16 for elements of 16
// bits and 32 for 8 bits. Accumulators of lane 4g + c of warp w: d[4j + e] is row 16w + g + 8 *
// (e / 2), column 8j + 2c + e % 2. A in registers: rows of the warp as in mma.cuh. Operands in
// shared memory are matrix descriptors; without the transpose bits they are K-major.
//
// wgmma is asynchronous: wgmma_fence(), one or more wgmma, wgmma_commit_group(), and before
// accumulators or registers of A are used, wgmma_wait_group().
#pragma once

#include <cstdint>

namespace halley::ptx {

/// Required before the first wgmma after other accesses to its accumulator or operand registers.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// wgmma instructions since the last call become one group.
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most kNumLeft of the newest wgmma groups are in flight.
template <int kNumLeft>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNumLeft) : "memory");
}
/// No instruction: tells the compiler that the accumulators change here, so that it does not move
/// their uses to before wgmma_wait_group().
template <int kCount>
__device__ __forceinline__ void warpgroup_fence_operand(float (&acc)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}

// Accumulators of N columns as operands with constraint `c`, and as names.
#define HALLEY_ACC_8(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define HALLEY_ACC_16(c, i) HALLEY_ACC_8(c, i), HALLEY_ACC_8(c, i + 4)
#define HALLEY_ACC_32(c, i) HALLEY_ACC_16(c, i), HALLEY_ACC_16(c, i + 8)
#define HALLEY_ACC_48(c, i) HALLEY_ACC_32(c, i), HALLEY_ACC_16(c, i + 16)
#define HALLEY_ACC_64(c, i) HALLEY_ACC_32(c, i), HALLEY_ACC_32(c, i + 16)
#define HALLEY_ACC_128(c, i) HALLEY_ACC_64(c, i), HALLEY_ACC_64(c, i + 32)
#define HALLEY_ACC_256(c, i) HALLEY_ACC_128(c, i), HALLEY_ACC_128(c, i + 64)
#define HALLEY_NAMES_8 "%0,%1,%2,%3"
#define HALLEY_NAMES_16 HALLEY_NAMES_8 ",%4,%5,%6,%7"
#define HALLEY_NAMES_32 HALLEY_NAMES_16 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define HALLEY_NAMES_48 HALLEY_NAMES_32 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define HALLEY_NAMES_64 HALLEY_NAMES_48 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define HALLEY_NAMES_128                                                             \
  HALLEY_NAMES_64                                                                    \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51" \
  ",%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HALLEY_NAMES_256                                                                       \
  HALLEY_NAMES_128                                                                             \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85"   \
  ",%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105"     \
  ",%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123" \
  ",%124,%125,%126,%127"

// One N: TYPES are K and types as the instruction names them, TAIL the immediates behind scale_d,
// `x0` to `x5` the names of the operands behind the accumulators.
#define HALLEY_WGMMA_SS(N, TYPES, TAIL, c, x0, x1, x2, ...)                                        \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " x2                                                 \
               ", 0;\n"                                                                            \
               "wgmma.mma_async.sync.aligned.m64n" #N TYPES " {" HALLEY_NAMES_##N "}, " x0 ", " x1 \
                                                                                  ", p" TAIL ";}"  \
               : HALLEY_ACC_##N(c, 0)                                                              \
               : "l"(a), "l"(b), "r"(scale_d))
#define HALLEY_WGMMA_RS(N, TYPES, TAIL, c, x0, x1, x2, x3, x4, x5)                \
  asm volatile("{.reg .pred p; setp.ne.b32 p, " x5                                \
               ", 0;\n"                                                           \
               "wgmma.mma_async.sync.aligned.m64n" #N TYPES " {" HALLEY_NAMES_##N \
               "}, {" x0 "," x1 "," x2 "," x3 "}, " x4 ", p" TAIL ";}"            \
               : HALLEY_ACC_##N(c, 0)                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d))
// PTX has all multiples of 8 up to 256.
#define HALLEY_WGMMA(FORM, ...)                                                              \
  constexpr int N = 2 * kCount;                                                              \
  static_assert(N == 8 || N == 16 || N == 32 || N == 48 || N == 64 || N == 128 || N == 256); \
  if constexpr (N == 8) FORM(8, __VA_ARGS__, "%4", "%5", "%6", "%7", "%8", "%9");            \
  if constexpr (N == 16) FORM(16, __VA_ARGS__, "%8", "%9", "%10", "%11", "%12", "%13");      \
  if constexpr (N == 32) FORM(32, __VA_ARGS__, "%16", "%17", "%18", "%19", "%20", "%21");    \
  if constexpr (N == 48) FORM(48, __VA_ARGS__, "%24", "%25", "%26", "%27", "%28", "%29");    \
  if constexpr (N == 64) FORM(64, __VA_ARGS__, "%32", "%33", "%34", "%35", "%36", "%37");    \
  if constexpr (N == 128) FORM(128, __VA_ARGS__, "%64", "%65", "%66", "%67", "%68", "%69");  \
  if constexpr (N == 256) FORM(256, __VA_ARGS__, "%128", "%129", "%130", "%131", "%132", "%133")

// The types of A and B, and the tails of both forms: scales 1 of A and B, then, of 16 bits, which
// of the operands in shared memory are MN-major. wgmma_ss() and wgmma_rs() choose the form.
#define HALLEY_WGMMA_TYPE(NAME, ACCUMULATOR, c, TYPES, SS_TAIL, RS_TAIL)                        \
  struct NAME {                                                                                 \
    using Accumulator = ACCUMULATOR;                                                            \
    template <int kCount>                                                                       \
    static __device__ __forceinline__ void ss(Accumulator (&d)[kCount], uint64_t a, uint64_t b, \
                                              int scale_d) {                                    \
      HALLEY_WGMMA(HALLEY_WGMMA_SS, TYPES, SS_TAIL, c);                                         \
    }                                                                                           \
    template <int kCount>                                                                       \
    static __device__ __forceinline__ void rs(Accumulator (&d)[kCount], const uint32_t* a,      \
                                              uint64_t b, int scale_d) {                        \
      HALLEY_WGMMA(HALLEY_WGMMA_RS, TYPES, RS_TAIL, c);                                         \
    }                                                                                           \
  }
HALLEY_WGMMA_TYPE(WgmmaF16, float, "+f", "k16.f32.f16.f16", ", 1, 1, 0, 0", ", 1, 1, 0");
HALLEY_WGMMA_TYPE(WgmmaF16TransposedB, float, "+f", "k16.f32.f16.f16", ", 1, 1, 0, 1", ", 1, 1, 1");
HALLEY_WGMMA_TYPE(WgmmaBf16, float, "+f", "k16.f32.bf16.bf16", ", 1, 1, 0, 0", ", 1, 1, 0");
HALLEY_WGMMA_TYPE(WgmmaBf16TransposedB, float, "+f", "k16.f32.bf16.bf16", ", 1, 1, 0, 1",
                  ", 1, 1, 1");
HALLEY_WGMMA_TYPE(WgmmaE4m3, float, "+f", "k32.f32.e4m3.e4m3", ", 1, 1", ", 1, 1");
HALLEY_WGMMA_TYPE(WgmmaS8, int32_t, "+r", "k32.s32.s8.s8", "", "");
HALLEY_WGMMA_TYPE(WgmmaU8S8, int32_t, "+r", "k32.s32.u8.s8", "", "");

/// A and B in shared memory.
template <class Wgmma, int kCount>
__device__ __forceinline__ void wgmma_ss(typename Wgmma::Accumulator (&d)[kCount], uint64_t a,
                                         uint64_t b, int scale_d) {
  Wgmma::ss(d, a, b, scale_d);
}
/// A in four registers, B in shared memory.
template <class Wgmma, int kCount>
__device__ __forceinline__ void wgmma_rs(typename Wgmma::Accumulator (&d)[kCount],
                                         const uint32_t* a, uint64_t b, int scale_d) {
  Wgmma::rs(d, a, b, scale_d);
}

#undef HALLEY_WGMMA_TYPE
#undef HALLEY_WGMMA
#undef HALLEY_WGMMA_RS
#undef HALLEY_WGMMA_SS
#undef HALLEY_NAMES_256
#undef HALLEY_NAMES_128
#undef HALLEY_NAMES_64
#undef HALLEY_NAMES_48
#undef HALLEY_NAMES_32
#undef HALLEY_NAMES_16
#undef HALLEY_NAMES_8
#undef HALLEY_ACC_256
#undef HALLEY_ACC_128
#undef HALLEY_ACC_64
#undef HALLEY_ACC_48
#undef HALLEY_ACC_32
#undef HALLEY_ACC_16
#undef HALLEY_ACC_8

}  // namespace halley::ptx
