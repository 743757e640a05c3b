// Codes of 4 bits to fragments of operand A, in registers: one decoder for each MixedKind (those of
// 8 bits are in mixed_u8_decode.cuh).
//
// Everything is volatile assembly: ptxas then keeps decoding between the products that are in
// flight. As plain C++ it moved the instructions, found hazards and serialised the tensor cores.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/cuda/gemm/hopper_instructions.cuh"
#include "halley/cuda/gemm/register_bits.cuh"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/narrow_mma.cuh"
#include "halley/cuda/mixed_gemm/wgmma.cuh"

namespace halley::cuda {

/// A decoder has:
///   Sum            of the products
///   kKind, kRegisters of a fragment: 64 outputs and 32 inputs
///   Group          a thread's parameters of one group, as they lie in memory
///   load_group()   of the entry at this address
///   Numbers        the same as decode() takes them: numbers_of(), plain_numbers_of()
///   decode()       two words of codes, 16 inputs each; of 8 bits four of 8 each
///   pairs_of()     of 16 bits: the numbers as a thread keeps them
///   decode_word(), of 8 bits decode_step()  as decode(), with these
///   multiply()     the fragment with 32 inputs of all tokens
/// and for at most sixteen tokens, by mma.sync, whose fragments are the same:
///   decode_plain() s8: as decode(), which the compiler may move. 16 bits: a word of codes, neither
///                  less their zero nor scaled
///   multiply_narrow()  of 16 bits
///   multiply_ones()  the same of codes that are all one, for the rows g
///   add_group()    products of plain codes to sums, with the group's parameters
///   zeros_of(), scales_of()  of 16 bits: what plain codes are less by, and what they are then
///                  multiplied with
///   decode_less_zero()  of 16 bits: as decode_plain(), less the zeros, exactly
struct U4S8Decoder {
  using Sum = int32_t;
  static constexpr MixedKind kKind = MixedKind::kU4S8;
  static constexpr int kRegisters = 4;
  struct Group {};
  using Numbers = Group;

  static __device__ __forceinline__ Group load_group(uint32_t) { return {}; }
  static __device__ __forceinline__ Numbers numbers_of(const Group&) { return {}; }
  static __device__ __forceinline__ Numbers plain_numbers_of(const Group&) { return {}; }

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
  static __device__ __forceinline__ void multiply_narrow(Sum (&sums)[4], const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    multiply_narrow_s8(sums, a, b0, b1);
  }
};

struct U4GroupS8Decoder {
  using Sum = int32_t;
  static constexpr MixedKind kKind = MixedKind::kU4GroupS8;
  static constexpr int kRegisters = 4;
  using Group = uint32_t;
  /// Of the rows g and g + 8: the scale, and the offset in every byte.
  struct Numbers {
    uint32_t scale, offset, upper_scale, upper_offset;
  };

  static __device__ __forceinline__ Group load_group(uint32_t address) {
    return load_shared_4(address);
  }

  static __device__ __forceinline__ Numbers numbers_of(const Group& group) {
    Numbers numbers;
    asm volatile(
        "prmt.b32 %0, %4, 0, 0x4440; prmt.b32 %1, %4, 0, 0x1111;\n"
        "prmt.b32 %2, %4, 0, 0x4442; prmt.b32 %3, %4, 0, 0x3333;"
        : "=&r"(numbers.scale), "=&r"(numbers.offset), "=&r"(numbers.upper_scale),
          "=&r"(numbers.upper_offset)
        : "r"(group));
    return numbers;
  }

  /// Four numbers at a time: code * scale + offset lies in [0, 255] in every byte, so that nothing
  /// is carried from byte to byte. They are 128 too large, and multiplied as u8: the epilogue takes
  /// off 128 times the sum of the token's codes.
  static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t u, uint32_t v,
                                                const Numbers& group) {
    asm volatile(
        "{.reg .b32 t;\n"
        "and.b32 t, %4, 0x0F0F0F0F; mad.lo.u32 %0, t, %6, %7;\n"
        "and.b32 t, %5, 0x0F0F0F0F; mad.lo.u32 %2, t, %6, %7;\n"
        "shr.u32 t, %4, 4; and.b32 t, t, 0x0F0F0F0F; mad.lo.u32 %1, t, %8, %9;\n"
        "shr.u32 t, %5, 4; and.b32 t, t, 0x0F0F0F0F; mad.lo.u32 %3, t, %8, %9;}"
        : "=&r"(a[0]), "=&r"(a[1]), "=&r"(a[2]), "=&r"(a[3])
        : "r"(u), "r"(v), "r"(group.scale), "r"(group.offset), "r"(group.upper_scale),
          "r"(group.upper_offset));
  }

  static __device__ __forceinline__ Numbers plain_numbers_of(const Group& group) {
    return {group & 255u, __byte_perm(group, 0, 0x1111), __byte_perm(group, 0, 0x4442),
            __byte_perm(group, 0, 0x3333)};
  }

  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t u, uint32_t v,
                                                      const Numbers& group) {
    constexpr uint32_t kCodes = 0x0F0F0F0Fu;
    a[0] = (u & kCodes) * group.scale + group.offset;
    a[1] = (u >> 4 & kCodes) * group.upper_scale + group.upper_offset;
    a[2] = (v & kCodes) * group.scale + group.offset;
    a[3] = (v >> 4 & kCodes) * group.upper_scale + group.upper_offset;
  }

  template <int kTokens>
  static __device__ __forceinline__ void multiply(Sum (&sums)[kTokens / 2], const uint32_t (&a)[4],
                                                  uint64_t tokens, int keeps) {
    U8Product<kTokens>::run(sums, a, tokens, keeps);
  }
  static __device__ __forceinline__ void multiply_narrow(Sum (&sums)[4], const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    multiply_narrow_u8(sums, a, b0, b1);
  }
};

/// The sum of products with the weight's own numbers. What leaves 32 bits on the way comes back.
template <class Decoder>
__device__ __forceinline__ typename Decoder::Sum exact_sum(typename Decoder::Sum sum,
                                                           int input_sum) {
  if constexpr (Decoder::kKind == MixedKind::kU4GroupS8) {
    return static_cast<int32_t>(static_cast<uint32_t>(sum) -
                                128u * static_cast<uint32_t>(input_sum));
  }
  return sum;
}

/// A group's parameters of 16 bits, each twice in a register, of a thread's row g and of g + 8. Of
/// kU8Bf16 in f32: the scale, and -(32768 + zero) times it.
struct GroupPairs {
  uint32_t scale, zero, upper_scale, upper_zero;
};

__device__ __forceinline__ GroupPairs pairs_of_halves(const uint2& group) {
  GroupPairs pairs;
  asm volatile(
      "prmt.b32 %0, %4, 0, 0x1010; prmt.b32 %1, %4, 0, 0x3232;\n"
      "prmt.b32 %2, %5, 0, 0x1010; prmt.b32 %3, %5, 0, 0x3232;"
      : "=&r"(pairs.scale), "=&r"(pairs.zero), "=&r"(pairs.upper_scale), "=&r"(pairs.upper_zero)
      : "r"(group.x), "r"(group.y));
  return pairs;
}

/// Of codes as decode_plain() makes them, each twice in a register: of a thread's row g and of
/// g + 8.
struct PlainZeros {
  uint32_t lower, upper;
};

/// sums += scale * (group_sums + less * input_sums), of two tokens.
__device__ __forceinline__ void add_scaled(float scale, float less, const float (&input_sums)[2],
                                           const float* group_sums, float* sums) {
  sums[0] = fmaf(scale, fmaf(less, input_sums[0], group_sums[0]), sums[0]);
  sums[1] = fmaf(scale, fmaf(less, input_sums[1], group_sums[1]), sums[1]);
}

struct U4F16Decoder {
  using Sum = float;
  static constexpr MixedKind kKind = MixedKind::kU4F16;
  static constexpr int kRegisters = 8;
  using Group = uint2;
  using Numbers = Group;

  static __device__ __forceinline__ Group load_group(uint32_t address) {
    return load_shared_8(address);
  }
  static __device__ __forceinline__ Numbers numbers_of(const Group& group) { return group; }
  static __device__ __forceinline__ GroupPairs pairs_of(const Group& group) {
    return pairs_of_halves(group);
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

  /// Without the exponents of 1024 and -64, as codes.
  static __device__ __forceinline__ PlainZeros zeros_of(const Group& group) {
    PlainZeros zeros;
    asm volatile(
        "prmt.b32 %0, %2, 0, 0x3232; and.b32 %0, %0, 0x03FF03FF;\n"
        "prmt.b32 %1, %3, 0, 0x3232; and.b32 %1, %1, 0x03FF03FF;"
        : "=&r"(zeros.lower), "=&r"(zeros.upper)
        : "r"(group.x), "r"(group.y));
    return zeros;
  }
  static __device__ __forceinline__ float2 scales_of(const Group& group) {
    return {__low2float(bits_as<__half2>(group.x)) * 0x1p24f,
            __low2float(bits_as<__half2>(group.y)) * 0x1p20f};
  }
  static __device__ __forceinline__ void decode_less_zero(uint32_t (&a)[4], uint32_t codes,
                                                          const PlainZeros& zeros) {
    asm volatile(
        "{.reg .b32 t; shr.u32 t, %4, 8;\n"
        "and.b32 %0, %4, 0x000F000F; and.b32 %1, %4, 0x00F000F0;\n"
        "and.b32 %2, t, 0x000F000F; and.b32 %3, t, 0x00F000F0;\n"
        "sub.rn.f16x2 %0, %0, %5; sub.rn.f16x2 %1, %1, %6;\n"
        "sub.rn.f16x2 %2, %2, %5; sub.rn.f16x2 %3, %3, %6;"
        "}"
        : "=&r"(a[0]), "=&r"(a[1]), "=&r"(a[2]), "=&r"(a[3])
        : "r"(codes), "r"(zeros.lower), "r"(zeros.upper));
  }

  /// Codes as the mantissas of numbers without exponent: 2^-24 times the code, those of the rows
  /// g + 8 16 times more.
  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t codes) {
    a[0] = codes & 0x000F000Fu;
    a[1] = codes & 0x00F000F0u;
    a[2] = codes >> 8 & 0x000F000Fu;
    a[3] = codes >> 8 & 0x00F000F0u;
  }
  static __device__ __forceinline__ void multiply_narrow(Sum* sums, const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    multiply_narrow_f16(sums, a, b0, b1);
  }
  static __device__ __forceinline__ void multiply_ones(Sum (&sums)[4], uint32_t b0, uint32_t b1) {
    multiply_narrow(sums, {0x00010001u, 0, 0x00010001u, 0}, b0, b1);
  }
  /// Entries have 1024 + zero of the row g, and -(64 + zero) of g + 8.
  static __device__ __forceinline__ void add_group(const Group& group, const float (&input_sums)[2],
                                                   const Sum (&group_sums)[4], Sum (&sums)[4]) {
    const float2 lower = __half22float2(bits_as<__half2>(group.x));
    const float2 upper = __half22float2(bits_as<__half2>(group.y));
    add_scaled(lower.x * 0x1p24f, 1024 - lower.y, input_sums, group_sums, sums);
    add_scaled(upper.x * 0x1p20f, fmaf(16, upper.y, 1024), input_sums, group_sums + 2, sums + 2);
  }
};

struct U4Bf16Decoder {
  using Sum = float;
  static constexpr MixedKind kKind = MixedKind::kU4Bf16;
  static constexpr int kRegisters = 8;
  using Group = uint2;
  using Numbers = Group;

  static __device__ __forceinline__ Group load_group(uint32_t address) {
    return load_shared_8(address);
  }
  static __device__ __forceinline__ Numbers numbers_of(const Group& group) { return group; }
  static __device__ __forceinline__ GroupPairs pairs_of(const Group& group) {
    return pairs_of_halves(group);
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

  static __device__ __forceinline__ PlainZeros zeros_of(const Group& group) {
    PlainZeros zeros;
    asm volatile("prmt.b32 %0, %2, 0, 0x3232; prmt.b32 %1, %3, 0, 0x3232;"
                 : "=&r"(zeros.lower), "=&r"(zeros.upper)
                 : "r"(group.x), "r"(group.y));
    return zeros;
  }
  static __device__ __forceinline__ float2 scales_of(const Group& group) {
    return {__uint_as_float(group.x << 16), __uint_as_float(group.y << 16)};
  }
  static __device__ __forceinline__ void decode_less_zero(uint32_t (&a)[4], uint32_t codes,
                                                          const PlainZeros& zeros) {
    asm volatile(
        "{.reg .b32 t;\n"
        "lop3.b32 %0, %4, 0x000F000F, 0x43004300, 0xEA;\n"
        "shr.u32 t, %4, 4; lop3.b32 %1, t, 0x000F000F, 0x43004300, 0xEA;\n"
        "shr.u32 t, %4, 8; lop3.b32 %2, t, 0x000F000F, 0x43004300, 0xEA;\n"
        "shr.u32 t, %4, 12; lop3.b32 %3, t, 0x000F000F, 0x43004300, 0xEA;\n"
        "sub.rn.bf16x2 %0, %0, %5; sub.rn.bf16x2 %1, %1, %6;\n"
        "sub.rn.bf16x2 %2, %2, %5; sub.rn.bf16x2 %3, %3, %6;"
        "}"
        : "=&r"(a[0]), "=&r"(a[1]), "=&r"(a[2]), "=&r"(a[3])
        : "r"(codes), "r"(zeros.lower), "r"(zeros.upper));
  }

  /// 128 + code.
  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t codes) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = (codes >> (4 * i) & 0x000F000Fu) | 0x43004300u;
  }
  static __device__ __forceinline__ void multiply_narrow(Sum* sums, const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    multiply_narrow_bf16(sums, a, b0, b1);
  }
  static __device__ __forceinline__ void multiply_ones(Sum (&sums)[4], uint32_t b0, uint32_t b1) {
    multiply_narrow(sums, {0x3F803F80u, 0, 0x3F803F80u, 0}, b0, b1);
  }
  /// Entries have 128 + zero.
  static __device__ __forceinline__ void add_group(const Group& group, const float (&input_sums)[2],
                                                   const Sum (&group_sums)[4], Sum (&sums)[4]) {
    const float2 lower = __bfloat1622float2(bits_as<__nv_bfloat162>(group.x));
    const float2 upper = __bfloat1622float2(bits_as<__nv_bfloat162>(group.y));
    add_scaled(lower.x, -lower.y, input_sums, group_sums, sums);
    add_scaled(upper.x, -upper.y, input_sums, group_sums + 2, sums + 2);
  }
};

}  // namespace halley::cuda
