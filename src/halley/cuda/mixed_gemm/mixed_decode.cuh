// Codes of 4 bits to fragments of operand A, in registers: one decoder for each MixedKind.
//
// Everything is volatile assembly: ptxas then keeps decoding between the products that are in
// flight. As plain C++ it moved the instructions, found hazards and serialised the tensor cores.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/hopper_instructions.cuh"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/narrow_mma.cuh"
#include "halley/cuda/mixed_gemm/wgmma_bf16.cuh"
#include "halley/cuda/mixed_gemm/wgmma_f16.cuh"
#include "halley/cuda/mixed_gemm/wgmma_s8.cuh"

namespace halley::cuda {

/// A decoder has:
///   Sum            of the products
///   kKind, kRegisters of a fragment: 64 outputs and 32 inputs
///   Group          a thread's parameters of one group, as they lie in memory
///   load_group()   of the entry at this address
///   decode()       two words of codes, 16 inputs each
///   multiply()     the fragment with 32 inputs of all tokens
/// and of s8, for at most eight tokens by mma.sync, whose fragments are the same:
///   decode_plain() as decode(), which the compiler may move
struct U4S8Decoder {
  using Sum = int32_t;
  static constexpr MixedKind kKind = MixedKind::kU4S8;
  static constexpr int kRegisters = 4;
  struct Group {};

  static __device__ __forceinline__ Group load_group(uint32_t) { return {}; }

  /// Codes are stored less 8, and become s8 in the high half of the byte: 16 times the number,
  /// without sign extension. The factor 1/16 is in the output's scale.
  static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t u, uint32_t v,
                                                const Group&) {
    asm volatile(
        "{.reg .b32 t;\n"
        "shl.b32 t, %4, 4; and.b32 %0, t, 0xF0F0F0F0; and.b32 %1, %4, 0xF0F0F0F0;\n"
        "shl.b32 t, %5, 4; and.b32 %2, t, 0xF0F0F0F0; and.b32 %3, %5, 0xF0F0F0F0;}"
        : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
        : "r"(u), "r"(v));
  }

  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t u, uint32_t v,
                                                      const Group&) {
    a[0] = u << 4 & 0xF0F0F0F0u;
    a[1] = u & 0xF0F0F0F0u;
    a[2] = v << 4 & 0xF0F0F0F0u;
    a[3] = v & 0xF0F0F0F0u;
  }

  template <int kTokens>
  static __device__ __forceinline__ void multiply(Sum (&sums)[kTokens / 2], const uint32_t (&a)[4],
                                                  uint64_t tokens, int keeps) {
    S8Product<kTokens>::run(sums, a, tokens, keeps);
  }
};

struct U4GroupS8Decoder {
  using Sum = int32_t;
  static constexpr MixedKind kKind = MixedKind::kU4GroupS8;
  static constexpr int kRegisters = 4;
  using Group = uint32_t;

  static __device__ __forceinline__ Group load_group(uint32_t address) {
    return load_shared_4(address);
  }

  /// Four numbers at a time: code * scale + offset lies in [0, 255] in every byte, so that nothing
  /// is carried from byte to byte; the offset is 128 too large, which the last step takes back.
  static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t u, uint32_t v,
                                                const Group& group) {
    asm volatile(
        "{.reg .b32 t, s, o;\n"
        "prmt.b32 s, %6, 0, 0x4440; prmt.b32 o, %6, 0, 0x1111;\n"
        "and.b32 t, %4, 0x0F0F0F0F; mad.lo.u32 t, t, s, o; xor.b32 %0, t, 0x80808080;\n"
        "and.b32 t, %5, 0x0F0F0F0F; mad.lo.u32 t, t, s, o; xor.b32 %2, t, 0x80808080;\n"
        "prmt.b32 s, %6, 0, 0x4442; prmt.b32 o, %6, 0, 0x3333;\n"
        "shr.u32 t, %4, 4; and.b32 t, t, 0x0F0F0F0F;\n"
        "mad.lo.u32 t, t, s, o; xor.b32 %1, t, 0x80808080;\n"
        "shr.u32 t, %5, 4; and.b32 t, t, 0x0F0F0F0F;\n"
        "mad.lo.u32 t, t, s, o; xor.b32 %3, t, 0x80808080;}"
        : "=&r"(a[0]), "=&r"(a[1]), "=&r"(a[2]), "=&r"(a[3])
        : "r"(u), "r"(v), "r"(group));
  }

  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t u, uint32_t v,
                                                      const Group& group) {
    constexpr uint32_t kCodes = 0x0F0F0F0Fu, kSigns = 0x80808080u;
    const uint32_t scale = group & 255u, offset = __byte_perm(group, 0, 0x1111);
    const uint32_t upper_scale = __byte_perm(group, 0, 0x4442);
    const uint32_t upper_offset = __byte_perm(group, 0, 0x3333);
    a[0] = ((u & kCodes) * scale + offset) ^ kSigns;
    a[1] = ((u >> 4 & kCodes) * upper_scale + upper_offset) ^ kSigns;
    a[2] = ((v & kCodes) * scale + offset) ^ kSigns;
    a[3] = ((v >> 4 & kCodes) * upper_scale + upper_offset) ^ kSigns;
  }

  template <int kTokens>
  static __device__ __forceinline__ void multiply(Sum (&sums)[kTokens / 2], const uint32_t (&a)[4],
                                                  uint64_t tokens, int keeps) {
    S8Product<kTokens>::run(sums, a, tokens, keeps);
  }
};

/// A group's parameters of 16 bits, each twice in a register, of a thread's row g and of g + 8.
struct GroupPairs {
  uint32_t scale, zero, upper_scale, upper_zero;
};

__device__ __forceinline__ GroupPairs pairs_of(const uint2& group) {
  GroupPairs pairs;
  asm volatile(
      "prmt.b32 %0, %4, 0, 0x1010; prmt.b32 %1, %4, 0, 0x3232;\n"
      "prmt.b32 %2, %5, 0, 0x1010; prmt.b32 %3, %5, 0, 0x3232;"
      : "=&r"(pairs.scale), "=&r"(pairs.zero), "=&r"(pairs.upper_scale), "=&r"(pairs.upper_zero)
      : "r"(group.x), "r"(group.y));
  return pairs;
}

struct U4F16Decoder {
  using Sum = float;
  static constexpr MixedKind kKind = MixedKind::kU4F16;
  static constexpr int kRegisters = 8;
  using Group = uint2;

  static __device__ __forceinline__ Group load_group(uint32_t address) {
    return load_shared_8(address);
  }

  /// A code below the exponent of 1024 is 1024 + code, four bits higher 1024 + 16 * code: less
  /// 1024 + zero, or times 1/16 less 64 + zero, it is exactly code - zero. The product with the
  /// scale is rounded once.
  static __device__ __forceinline__ void decode_word(uint32_t* a, uint32_t codes,
                                                     const GroupPairs& group) {
    asm volatile(
        "{.reg .b32 t;\n"
        "shr.u32 t, %4, 8;\n"
        "lop3.b32 %0, %4, 0x000F000F, 0x64006400, 0xEA;\n"
        "lop3.b32 %2, t, 0x000F000F, 0x64006400, 0xEA;\n"
        "sub.rn.f16x2 %0, %0, %6; sub.rn.f16x2 %2, %2, %6;\n"
        "mul.rn.f16x2 %0, %0, %5; mul.rn.f16x2 %2, %2, %5;\n"
        "lop3.b32 %1, %4, 0x00F000F0, 0x64006400, 0xEA;\n"
        "lop3.b32 %3, t, 0x00F000F0, 0x64006400, 0xEA;\n"
        "fma.rn.f16x2 %1, %1, %9, %8; fma.rn.f16x2 %3, %3, %9, %8;\n"
        "mul.rn.f16x2 %1, %1, %7; mul.rn.f16x2 %3, %3, %7;}"
        : "=&r"(a[0]), "=&r"(a[1]), "=&r"(a[2]), "=&r"(a[3])
        : "r"(codes), "r"(group.scale), "r"(group.zero), "r"(group.upper_scale),
          "r"(group.upper_zero), "r"(0x2C002C00u));  // 1/16, twice
  }

  static __device__ __forceinline__ void decode(uint32_t (&a)[8], uint32_t u, uint32_t v,
                                                const Group& group) {
    const GroupPairs pairs = pairs_of(group);
    decode_word(a, u, pairs);
    decode_word(a + 4, v, pairs);
  }

  template <int kTokens>
  static __device__ __forceinline__ void multiply(Sum (&sums)[kTokens / 2], const uint32_t (&a)[8],
                                                  uint64_t tokens, int keeps) {
    F16Product<kTokens>::run(sums, a, tokens, keeps);
    F16Product<kTokens>::run(sums, a + 4, tokens + 2, 1);  // 32 bytes further
  }
};

struct U4Bf16Decoder {
  using Sum = float;
  static constexpr MixedKind kKind = MixedKind::kU4Bf16;
  static constexpr int kRegisters = 8;
  using Group = uint2;

  static __device__ __forceinline__ Group load_group(uint32_t address) {
    return load_shared_8(address);
  }

  /// As U4F16Decoder with the exponent of 128: the mantissa has room for one code alone, so that
  /// all four pairs are shifted down.
  static __device__ __forceinline__ void decode_word(uint32_t* a, uint32_t codes,
                                                     const GroupPairs& group) {
    asm volatile(
        "{.reg .b32 t;\n"
        "lop3.b32 %0, %4, 0x000F000F, 0x43004300, 0xEA;\n"
        "shr.u32 t, %4, 8; lop3.b32 %2, t, 0x000F000F, 0x43004300, 0xEA;\n"
        "sub.rn.bf16x2 %0, %0, %6; sub.rn.bf16x2 %2, %2, %6;\n"
        "mul.rn.bf16x2 %0, %0, %5; mul.rn.bf16x2 %2, %2, %5;\n"
        "shr.u32 t, %4, 4; lop3.b32 %1, t, 0x000F000F, 0x43004300, 0xEA;\n"
        "shr.u32 t, %4, 12; lop3.b32 %3, t, 0x000F000F, 0x43004300, 0xEA;\n"
        "sub.rn.bf16x2 %1, %1, %8; sub.rn.bf16x2 %3, %3, %8;\n"
        "mul.rn.bf16x2 %1, %1, %7; mul.rn.bf16x2 %3, %3, %7;}"
        : "=&r"(a[0]), "=&r"(a[1]), "=&r"(a[2]), "=&r"(a[3])
        : "r"(codes), "r"(group.scale), "r"(group.zero), "r"(group.upper_scale),
          "r"(group.upper_zero));
  }

  static __device__ __forceinline__ void decode(uint32_t (&a)[8], uint32_t u, uint32_t v,
                                                const Group& group) {
    const GroupPairs pairs = pairs_of(group);
    decode_word(a, u, pairs);
    decode_word(a + 4, v, pairs);
  }

  template <int kTokens>
  static __device__ __forceinline__ void multiply(Sum (&sums)[kTokens / 2], const uint32_t (&a)[8],
                                                  uint64_t tokens, int keeps) {
    Bf16Product<kTokens>::run(sums, a, tokens, keeps);
    Bf16Product<kTokens>::run(sums, a + 4, tokens + 2, 1);  // 32 bytes further
  }
};

}  // namespace halley::cuda
