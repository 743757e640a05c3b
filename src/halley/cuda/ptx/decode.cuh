// Dequantization in several instructions at once, for fragments of operand A.
//
// Each could be composed of the functions of packed_math.cuh, as the other decoders are. The
// compiler counts every block of assembly as a call, though: with one for each instruction it
// judges these loops otherwise, and kernels spilled predicates in their innermost loop (14 bytes in
// mixed_kernel of 8 bits and 64 x 128, and of U4Bf16Decoder and 16 x 256, with CUDA 13.0).
//
// a: four registers of two 16-bit elements; a[0], a[2] of a lane's row g, a[1], a[3] of row g + 8.
#pragma once

#include <cstdint>

namespace halley::ptx {

/// a = (q - zero) * scale in f16. u, v: 4 q of 8 bits of row g and of g + 8. group: pairs of the
/// scale and of 1024 + zero of row g, then of g + 8.
__device__ __forceinline__ void dequantize_u8_f16x2(uint32_t* a, uint32_t u, uint32_t v,
                                                    const uint4& group) {
  asm volatile(
      "prmt.b32 %0, %4, %10, 0x4240; prmt.b32 %2, %4, %10, 0x4341;\n"
      "prmt.b32 %1, %5, %10, 0x4240; prmt.b32 %3, %5, %10, 0x4341;\n"
      "sub.rn.f16x2 %0, %0, %7; sub.rn.f16x2 %2, %2, %7;\n"
      "sub.rn.f16x2 %1, %1, %9; sub.rn.f16x2 %3, %3, %9;\n"
      "mul.rn.f16x2 %0, %0, %6; mul.rn.f16x2 %2, %2, %6;\n"
      "mul.rn.f16x2 %1, %1, %8; mul.rn.f16x2 %3, %3, %8;"
      : "=&r"(a[0]), "=&r"(a[1]), "=&r"(a[2]), "=&r"(a[3])
      : "r"(u), "r"(v), "r"(group.x), "r"(group.y), "r"(group.z), "r"(group.w), "r"(0x64646464u));
}

/// a[0], a[2] = scale * (32768 + q) + zero, rounded once to bf16. packed: 4 q of 8 bits, bytes 0
/// and 2 of a[0]. scale, zero: f32.
__device__ __forceinline__ void dequantize_u8_bf16x2(uint32_t* a, uint32_t packed, uint32_t scale,
                                                     uint32_t zero) {
  asm volatile(
      "{.reg .b32 t, u, v, w;\n"
      "prmt.b32 t, %2, %5, 0x7404; prmt.b32 u, %2, %5, 0x7414;\n"
      "prmt.b32 v, %2, %5, 0x7424; prmt.b32 w, %2, %5, 0x7434;\n"
      "fma.rn.f32 t, t, %3, %4; fma.rn.f32 u, u, %3, %4;\n"
      "fma.rn.f32 v, v, %3, %4; fma.rn.f32 w, w, %3, %4;\n"
      "cvt.rn.bf16x2.f32 %0, v, t; cvt.rn.bf16x2.f32 %1, w, u;}"
      : "=&r"(a[0]), "=&r"(a[2])
      : "r"(packed), "r"(scale), "r"(zero), "r"(0x47000000u));
}

/// a = q - zero in bf16. packed: 8 q of 4 bits, those of a[0] lowest in both halves. lower, upper:
/// pairs of 128 + zero of row g and of g + 8.
__device__ __forceinline__ void subtract_u4_bf16x2(uint32_t* a, uint32_t packed, uint32_t lower,
                                                   uint32_t upper) {
  asm volatile(
      "{.reg .b32 t;\n"
      "lop3.b32 %0, %4, 0x000F000F, 0x43004300, 0xEA;\n"
      "shr.u32 t, %4, 4; lop3.b32 %1, t, 0x000F000F, 0x43004300, 0xEA;\n"
      "shr.u32 t, %4, 8; lop3.b32 %2, t, 0x000F000F, 0x43004300, 0xEA;\n"
      "shr.u32 t, %4, 12; lop3.b32 %3, t, 0x000F000F, 0x43004300, 0xEA;\n"
      "sub.rn.bf16x2 %0, %0, %5; sub.rn.bf16x2 %1, %1, %6;\n"
      "sub.rn.bf16x2 %2, %2, %5; sub.rn.bf16x2 %3, %3, %6;}"
      : "=&r"(a[0]), "=&r"(a[1]), "=&r"(a[2]), "=&r"(a[3])
      : "r"(packed), "r"(lower), "r"(upper));
}

}  // namespace halley::ptx
