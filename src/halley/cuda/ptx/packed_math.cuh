// Arithmetic on 32-bit registers: bits, bytes, pairs of f16 and bf16, and conversions.
//
// Each function stands here twice. Those of in_order are volatile: the compiler keeps them in the
// order of the program relative to wgmma and to loads. Decoders that run while wgmma is in flight
// use these: with the others the compiler moves instructions, ptxas finds hazards, and serialises
// the tensor cores.
#pragma once

#include <cstdint>

namespace halley::ptx {

// Result `d` of type D, which a register of constraint `in` holds; the text; its operands.
#define HALLEY_PTX(NAME, D, in, PARAMETERS, TEXT, ...) \
  __device__ __forceinline__ D NAME PARAMETERS {       \
    D d;                                               \
    asm(TEXT : "=" in(d) : __VA_ARGS__);               \
    return d;                                          \
  }                                                    \
  namespace in_order {                                 \
  __device__ __forceinline__ D NAME PARAMETERS {       \
    D d;                                               \
    asm volatile(TEXT : "=" in(d) : __VA_ARGS__);      \
    return d;                                          \
  }                                                    \
  }
#define HALLEY_PTX_2(NAME, INSTRUCTION)                                                         \
  HALLEY_PTX(NAME, uint32_t, "r", (uint32_t a, uint32_t b), INSTRUCTION " %0, %1, %2;", "r"(a), \
             "r"(b))
#define HALLEY_PTX_3(NAME, INSTRUCTION)                                 \
  HALLEY_PTX(NAME, uint32_t, "r", (uint32_t a, uint32_t b, uint32_t c), \
             INSTRUCTION " %0, %1, %2, %3;", "r"(a), "r"(b), "r"(c))

// Integers and bits.
HALLEY_PTX_2(and_b32, "and.b32")
HALLEY_PTX_2(shl_b32, "shl.b32")
HALLEY_PTX_2(shr_u32, "shr.u32")
HALLEY_PTX_2(sub_u32, "sub.u32")
/// The low 32 bits of a * b + c.
HALLEY_PTX_3(mad_lo_u32, "mad.lo.u32")
/// `c` bits of `a` from bit `b` on, sign-extended.
HALLEY_PTX_3(bfe_s32, "bfe.s32")
/// Four of the eight bytes of (a, b), a's lowest first, by the nibbles of `c`.
HALLEY_PTX_3(prmt_b32, "prmt.b32")

/// Operands of a logical operation that gives lop3's table: lop3_b32<(kLopA & kLopB) | kLopC>.
inline constexpr int kLopA = 0xF0, kLopB = 0xCC, kLopC = 0xAA;
inline constexpr int kAndOr = (kLopA & kLopB) | kLopC;
/// Any logical operation of three operands.
template <int kTable>
__device__ __forceinline__ uint32_t lop3_b32(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return d;
}
namespace in_order {
template <int kTable>
__device__ __forceinline__ uint32_t lop3_b32(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm volatile("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return d;
}
}  // namespace in_order

// Pairs, rounded to nearest even; fma rounds once.
HALLEY_PTX_2(add_rn_f16x2, "add.rn.f16x2")
HALLEY_PTX_2(sub_rn_f16x2, "sub.rn.f16x2")
HALLEY_PTX_2(mul_rn_f16x2, "mul.rn.f16x2")
HALLEY_PTX_3(fma_rn_f16x2, "fma.rn.f16x2")
HALLEY_PTX_2(add_rn_bf16x2, "add.rn.bf16x2")
HALLEY_PTX_2(sub_rn_bf16x2, "sub.rn.bf16x2")
HALLEY_PTX_2(mul_rn_bf16x2, "mul.rn.bf16x2")

HALLEY_PTX(mul_rn_f32, float, "f", (float a, float b), "mul.rn.f32 %0, %1, %2;", "f"(a), "f"(b))
/// 2^a, to about 2 ulp; 0 for -infinity and results below the normal ones.
HALLEY_PTX(ex2_approx_ftz_f32, float, "f", (float a), "ex2.approx.ftz.f32 %0, %1;", "f"(a))

/// Two f32 rounded to a pair, `low` in the low half.
HALLEY_PTX(cvt_rn_f16x2_f32, uint32_t, "r", (float low, float high), "cvt.rn.f16x2.f32 %0, %1, %2;",
           "f"(high), "f"(low))
HALLEY_PTX(cvt_rn_bf16x2_f32, uint32_t, "r", (float low, float high),
           "cvt.rn.bf16x2.f32 %0, %1, %2;", "f"(high), "f"(low))
/// Two e4m3 in the low 16 bits as two f16; exact.
HALLEY_PTX(cvt_rn_f16x2_e4m3x2, uint32_t, "r", (uint32_t a),
           "{.reg .b16 low; cvt.u16.u32 low, %1; cvt.rn.f16x2.e4m3x2 %0, low;}", "r"(a))
/// The f16 in the low 16 bits; exact.
HALLEY_PTX(cvt_f32_f16, float, "f", (uint32_t a),
           "{.reg .b16 low; cvt.u16.u32 low, %1; cvt.f32.f16 %0, low;}", "r"(a))

#undef HALLEY_PTX_3
#undef HALLEY_PTX_2
#undef HALLEY_PTX

}  // namespace halley::ptx
