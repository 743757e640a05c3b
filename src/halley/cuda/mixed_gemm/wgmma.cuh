// wgmma of s8, u8 and s8, f16 and bf16: A from registers, B (tokens) from shared memory.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// sums[64 x kTokens] += a[64 x k] * b[k x kTokens], of 32 inputs k of s8 and 16 of 16 bits;
/// without the sums' old values where `keeps` is 0. `b` is a descriptor of tokens' rows (inputs
/// fastest, swizzled by 128 bytes). Fragments as in the PTX ISA, wgmma; asynchronous: fence, close
/// and wait around it.
template <int kTokens>
struct S8Product;
/// The same of numbers a without sign.
template <int kTokens>
struct U8Product;
template <int kTokens>
struct F16Product;
template <int kTokens>
struct Bf16Product;

// Sums, as operands and as their names; those of 16 tokens are a part of those of 32, and so on.
#define HALLEY_SUMS(c, i) \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define HALLEY_SUMS_16(c) HALLEY_SUMS(c, 0)
#define HALLEY_SUMS_32(c) HALLEY_SUMS_16(c), HALLEY_SUMS(c, 8)
#define HALLEY_SUMS_48(c) HALLEY_SUMS_32(c), HALLEY_SUMS(c, 16)
#define HALLEY_SUMS_64(c) HALLEY_SUMS_48(c), HALLEY_SUMS(c, 24)
#define HALLEY_SUMS_128(c) \
  HALLEY_SUMS_64(c), HALLEY_SUMS(c, 32), HALLEY_SUMS(c, 40), HALLEY_SUMS(c, 48), HALLEY_SUMS(c, 56)
#define HALLEY_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7"
#define HALLEY_NAMES_32 HALLEY_NAMES_16 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define HALLEY_NAMES_48 HALLEY_NAMES_32 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define HALLEY_NAMES_64 HALLEY_NAMES_48 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define HALLEY_NAMES_128                                                             \
  HALLEY_NAMES_64                                                                    \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51" \
  ",%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// `operands` are the names of A, `b_name` and `p_name` those of the descriptor and of `keeps`.
#define HALLEY_PRODUCT(Product, Number, constraint, types, flags, tokens, operands, b_name,     \
                       p_name)                                                                  \
  template <>                                                                                   \
  struct Product<tokens> {                                                                      \
    static __device__ __forceinline__ void run(Number (&d)[tokens / 2], const uint32_t* a,      \
                                               uint64_t b, int keeps) {                         \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " p_name                                      \
                   ", 0;\n"                                                                     \
                   "wgmma.mma_async.sync.aligned.m64n" #tokens types " {" HALLEY_NAMES_##tokens \
                   "}, {" operands "}, " b_name ", p" flags ";}"                                \
                   : HALLEY_SUMS_##tokens(constraint)                                           \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keeps));           \
    }                                                                                           \
  }
#define HALLEY_PRODUCTS(...)                                                            \
  HALLEY_PRODUCT(S8Product, int32_t, "+r", "k32.s32.s8.s8", "", __VA_ARGS__);           \
  HALLEY_PRODUCT(U8Product, int32_t, "+r", "k32.s32.u8.s8", "", __VA_ARGS__);           \
  HALLEY_PRODUCT(F16Product, float, "+f", "k16.f32.f16.f16", ", 1, 1, 0", __VA_ARGS__); \
  HALLEY_PRODUCT(Bf16Product, float, "+f", "k16.f32.bf16.bf16", ", 1, 1, 0", __VA_ARGS__)

HALLEY_PRODUCTS(16, "%8,%9,%10,%11", "%12", "%13");
HALLEY_PRODUCTS(32, "%16,%17,%18,%19", "%20", "%21");
HALLEY_PRODUCTS(48, "%24,%25,%26,%27", "%28", "%29");
HALLEY_PRODUCTS(64, "%32,%33,%34,%35", "%36", "%37");
HALLEY_PRODUCTS(128, "%64,%65,%66,%67", "%68", "%69");

#undef HALLEY_PRODUCTS
#undef HALLEY_PRODUCT
#undef HALLEY_NAMES_128
#undef HALLEY_NAMES_64
#undef HALLEY_NAMES_48
#undef HALLEY_NAMES_32
#undef HALLEY_NAMES_16
#undef HALLEY_SUMS_128
#undef HALLEY_SUMS_64
#undef HALLEY_SUMS_48
#undef HALLEY_SUMS_32
#undef HALLEY_SUMS_16
#undef HALLEY_SUMS

}  // namespace halley::cuda
