// wgmma of s8 and of u8 and s8: A from registers, B (tokens, s8) from shared memory.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// sums[64 x kTokens] += a[64 x 32] * b[32 x kTokens]; without the sums' old values where
/// `keeps` is 0. `b` is a descriptor of tokens' rows (inputs fastest, swizzled by 128 bytes).
/// Fragments as in the PTX ISA, wgmma; asynchronous: fence, close and wait around it.
template <int kTokens>
struct S8Product;
/// The same of numbers a without sign.
template <int kTokens>
struct U8Product;

// Names of operands as they are numbered: sums, A, descriptor and flag. `__VA_ARGS__` are the sums.
#define HALLEY_S8_PRODUCT(Product, a_type, tokens, sums, four, b_name, p_name, ...)         \
  template <>                                                                               \
  struct Product<tokens> {                                                                  \
    static __device__ __forceinline__ void run(int32_t (&d)[tokens / 2], const uint32_t* a, \
                                               uint64_t b, int keeps) {                     \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " p_name                                  \
                   ", 0;\n"                                                                 \
                   "wgmma.mma_async.sync.aligned.m64n" #tokens "k32.s32." a_type            \
                   ".s8 "                                                                   \
                   "{" sums "}, {" four "}, " b_name ", p;}"                                \
                   : __VA_ARGS__                                                            \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keeps));       \
    }                                                                                       \
  }
#define HALLEY_S8_PRODUCTS(...)                    \
  HALLEY_S8_PRODUCT(S8Product, "s8", __VA_ARGS__); \
  HALLEY_S8_PRODUCT(U8Product, "u8", __VA_ARGS__)
#define HALLEY_S8_SUMS(i)                                                                     \
  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), \
      "+r"(d[i + 6]), "+r"(d[i + 7])

HALLEY_S8_PRODUCTS(16, "%0,%1,%2,%3,%4,%5,%6,%7", "%8,%9,%10,%11", "%12", "%13", HALLEY_S8_SUMS(0));
HALLEY_S8_PRODUCTS(32, "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15", "%16,%17,%18,%19",
                   "%20", "%21", HALLEY_S8_SUMS(0), HALLEY_S8_SUMS(8));
HALLEY_S8_PRODUCTS(48,
                   "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                   "%22,%23",
                   "%24,%25,%26,%27", "%28", "%29", HALLEY_S8_SUMS(0), HALLEY_S8_SUMS(8),
                   HALLEY_S8_SUMS(16));
HALLEY_S8_PRODUCTS(64,
                   "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                   "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31",
                   "%32,%33,%34,%35", "%36", "%37", HALLEY_S8_SUMS(0), HALLEY_S8_SUMS(8),
                   HALLEY_S8_SUMS(16), HALLEY_S8_SUMS(24));
HALLEY_S8_PRODUCTS(128,
                   "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                   "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,"
                   "%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,"
                   "%60,%61,%62,%63",
                   "%64,%65,%66,%67", "%68", "%69", HALLEY_S8_SUMS(0), HALLEY_S8_SUMS(8),
                   HALLEY_S8_SUMS(16), HALLEY_S8_SUMS(24), HALLEY_S8_SUMS(32), HALLEY_S8_SUMS(40),
                   HALLEY_S8_SUMS(48), HALLEY_S8_SUMS(56));

#undef HALLEY_S8_PRODUCT
#undef HALLEY_S8_PRODUCTS
#undef HALLEY_S8_SUMS

}  // namespace halley::cuda
