// Codes of 8 bits to fragments of operand A, in registers: as mixed_decode.cuh says, where codes of
// 16 inputs are two words, of a thread's row g and of g + 8.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_decode.cuh"

namespace halley::cuda {

struct U8F16Decoder {
  using Sum = float;
  static constexpr MixedKind kKind = MixedKind::kU8F16;
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

  /// A code below the exponent of 1024 is 1024 + code: less 1024 + zero it is exactly code - zero,
  /// and the product with the scale is rounded once. `u` and `v`: 16 inputs of both rows.
  static __device__ __forceinline__ void decode_words(uint32_t* a, uint32_t u, uint32_t v,
                                                      const GroupPairs& group) {
    asm volatile(
        "prmt.b32 %0, %4, %10, 0x4240; prmt.b32 %2, %4, %10, 0x4341;\n"
        "prmt.b32 %1, %5, %10, 0x4240; prmt.b32 %3, %5, %10, 0x4341;\n"
        "sub.rn.f16x2 %0, %0, %7; sub.rn.f16x2 %2, %2, %7;\n"
        "sub.rn.f16x2 %1, %1, %9; sub.rn.f16x2 %3, %3, %9;\n"
        "mul.rn.f16x2 %0, %0, %6; mul.rn.f16x2 %2, %2, %6;\n"
        "mul.rn.f16x2 %1, %1, %8; mul.rn.f16x2 %3, %3, %8;"
        : "=&r"(a[0]), "=&r"(a[1]), "=&r"(a[2]), "=&r"(a[3])
        : "r"(u), "r"(v), "r"(group.scale), "r"(group.zero), "r"(group.upper_scale),
          "r"(group.upper_zero), "r"(0x64646464u));
  }

  static __device__ __forceinline__ void decode_step(uint32_t (&a)[8], const uint4& codes,
                                                     const GroupPairs& pairs) {
    decode_words(a, codes.x, codes.y, pairs);
    decode_words(a + 4, codes.z, codes.w, pairs);
  }
  static __device__ __forceinline__ void decode(uint32_t (&a)[8], const uint4& codes,
                                                const Numbers& group) {
    decode_step(a, codes, pairs_of(group));
  }

  template <int kTokens>
  static __device__ __forceinline__ void multiply(Sum (&sums)[kTokens / 2], const uint32_t (&a)[8],
                                                  uint64_t tokens, int keeps) {
    U4F16Decoder::multiply<kTokens>(sums, a, tokens, keeps);
  }

  static __device__ __forceinline__ PlainZeros zeros_of(const Group& group) {
    return U4F16Decoder::zeros_of(group);
  }
  static __device__ __forceinline__ float2 scales_of(const Group& group) {
    return {__low2float(bits_as<__half2>(group.x)) * 0x1p24f,
            __low2float(bits_as<__half2>(group.y)) * 0x1p24f};
  }
  static __device__ __forceinline__ void decode_less_zero(uint32_t (&a)[4], uint32_t u, uint32_t v,
                                                          const PlainZeros& zeros) {
    asm volatile(
        "prmt.b32 %0, %4, 0, 0x4240; prmt.b32 %2, %4, 0, 0x4341;\n"
        "prmt.b32 %1, %5, 0, 0x4240; prmt.b32 %3, %5, 0, 0x4341;\n"
        "sub.rn.f16x2 %0, %0, %6; sub.rn.f16x2 %2, %2, %6;\n"
        "sub.rn.f16x2 %1, %1, %7; sub.rn.f16x2 %3, %3, %7;"
        : "=&r"(a[0]), "=&r"(a[1]), "=&r"(a[2]), "=&r"(a[3])
        : "r"(u), "r"(v), "r"(zeros.lower), "r"(zeros.upper));
  }

  /// Codes as the mantissas of numbers without exponent: 2^-24 times the code.
  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t u, uint32_t v) {
    a[0] = u & 0x00FF00FFu;
    a[1] = v & 0x00FF00FFu;
    a[2] = __byte_perm(u, 0, 0x4341);
    a[3] = __byte_perm(v, 0, 0x4341);
  }
  static __device__ __forceinline__ void multiply_narrow(Sum* sums, const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    multiply_narrow_f16(sums, a, b0, b1);
  }
  static __device__ __forceinline__ void multiply_ones(Sum (&sums)[4], uint32_t b0, uint32_t b1) {
    U4F16Decoder::multiply_ones(sums, b0, b1);
  }
  /// Entries have 1024 + zero.
  static __device__ __forceinline__ void add_group(const Group& group, const float (&input_sums)[2],
                                                   const Sum (&group_sums)[4], Sum (&sums)[4]) {
    const float2 lower = __half22float2(bits_as<__half2>(group.x));
    const float2 upper = __half22float2(bits_as<__half2>(group.y));
    add_scaled(lower.x * 0x1p24f, 1024 - lower.y, input_sums, group_sums, sums);
    add_scaled(upper.x * 0x1p24f, 1024 - upper.y, input_sums, group_sums + 2, sums + 2);
  }
};

struct U8Bf16Decoder {
  using Sum = float;
  static constexpr MixedKind kKind = MixedKind::kU8Bf16;
  static constexpr int kRegisters = 8;
  using Group = uint2;
  using Numbers = Group;

  static __device__ __forceinline__ Group load_group(uint32_t address) {
    return load_shared_8(address);
  }
  static __device__ __forceinline__ Numbers numbers_of(const Group& group) { return group; }

  /// Entries have the scale in bf16 and the zero as an integer, which is put under the exponent of
  /// 32768 as codes are.
  static __device__ __forceinline__ GroupPairs pairs_of(const Group& group) {
    GroupPairs pairs;
    asm volatile(
        "{.reg .b32 t, u; .reg .f32 s, v;\n"
        "prmt.b32 %0, %4, 0, 0x1044; prmt.b32 %2, %5, 0, 0x1044;\n"
        "prmt.b32 t, %4, %6, 0x7324; prmt.b32 u, %5, %6, 0x7324;\n"
        "neg.f32 s, %0; neg.f32 v, %2;\n"
        "mul.rn.f32 %1, t, s; mul.rn.f32 %3, u, v;}"
        : "=&r"(pairs.scale), "=&r"(pairs.zero), "=&r"(pairs.upper_scale), "=&r"(pairs.upper_zero)
        : "r"(group.x), "r"(group.y), "r"(0x47000000u));
    return pairs;
  }

  /// The mantissa of bf16 has no room for a code. In f32 a code in the second byte below the
  /// exponent of 32768 is 32768 + code, and times the scale (8 bits) less 32768 + zero times the
  /// scale, both of at most 24 bits, it is exactly scale * (code - zero), which is rounded once to
  /// bf16: 5 instructions for two weights.
  /// `codes`: 16 inputs of one row, whose fragments are a[0] and a[2].
  static __device__ __forceinline__ void decode_word(uint32_t* a, uint32_t codes, uint32_t scale,
                                                     uint32_t zero) {
    asm volatile(
        "{.reg .b32 t, u, v, w;\n"
        "prmt.b32 t, %2, %5, 0x7404; prmt.b32 u, %2, %5, 0x7414;\n"
        "prmt.b32 v, %2, %5, 0x7424; prmt.b32 w, %2, %5, 0x7434;\n"
        "fma.rn.f32 t, t, %3, %4; fma.rn.f32 u, u, %3, %4;\n"
        "fma.rn.f32 v, v, %3, %4; fma.rn.f32 w, w, %3, %4;\n"
        "cvt.rn.bf16x2.f32 %0, v, t; cvt.rn.bf16x2.f32 %1, w, u;}"
        : "=&r"(a[0]), "=&r"(a[2])
        : "r"(codes), "r"(scale), "r"(zero), "r"(0x47000000u));
  }

  static __device__ __forceinline__ void decode_step(uint32_t (&a)[8], const uint4& codes,
                                                     const GroupPairs& pairs) {
    decode_word(a, codes.x, pairs.scale, pairs.zero);
    decode_word(a + 1, codes.y, pairs.upper_scale, pairs.upper_zero);
    decode_word(a + 4, codes.z, pairs.scale, pairs.zero);
    decode_word(a + 5, codes.w, pairs.upper_scale, pairs.upper_zero);
  }
  static __device__ __forceinline__ void decode(uint32_t (&a)[8], const uint4& codes,
                                                const Numbers& group) {
    decode_step(a, codes, pairs_of(group));
  }

  template <int kTokens>
  static __device__ __forceinline__ void multiply(Sum (&sums)[kTokens / 2], const uint32_t (&a)[8],
                                                  uint64_t tokens, int keeps) {
    U4Bf16Decoder::multiply<kTokens>(sums, a, tokens, keeps);
  }

  static __device__ __forceinline__ float zero_of(uint32_t entry) {
    return static_cast<float>(entry >> 16);
  }
  /// Of codes less 128, which bf16 has exactly.
  static __device__ __forceinline__ PlainZeros zeros_of(const Group& group) {
    PlainZeros zeros;
    asm volatile("cvt.rn.bf16x2.f32 %0, %2, %2; cvt.rn.bf16x2.f32 %1, %3, %3;"
                 : "=&r"(zeros.lower), "=&r"(zeros.upper)
                 : "f"(zero_of(group.x) - 128), "f"(zero_of(group.y) - 128));
    return zeros;
  }
  static __device__ __forceinline__ float2 scales_of(const Group& group) {
    return {__uint_as_float(group.x << 16), __uint_as_float(group.y << 16)};
  }

  /// Code less 128 of the bytes 0 and 2: the lower seven bits under the exponent of 128, and -128
  /// or -256 as the highest bit says, are added.
  static __device__ __forceinline__ uint32_t less_128(uint32_t codes) {
    uint32_t pair;
    asm("{.reg .b32 t;\n"
        "lop3.b32 %0, %1, 0x007F007F, 0x43004300, 0xEA;\n"
        "lop3.b32 t, %1, 0x00800080, 0xC300C300, 0xAE;\n"
        "add.rn.bf16x2 %0, %0, t;}"
        : "=&r"(pair)
        : "r"(codes));
    return pair;
  }
  static __device__ __forceinline__ void decode_less_zero(uint32_t (&a)[4], uint32_t u, uint32_t v,
                                                          const PlainZeros& zeros) {
    decode_plain(a, u, v);
    asm volatile(
        "sub.rn.bf16x2 %0, %0, %4; sub.rn.bf16x2 %1, %1, %5;\n"
        "sub.rn.bf16x2 %2, %2, %4; sub.rn.bf16x2 %3, %3, %5;"
        : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])
        : "r"(zeros.lower), "r"(zeros.upper));
  }

  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t u, uint32_t v) {
    a[0] = less_128(u);
    a[1] = less_128(v);
    a[2] = less_128(u >> 8);
    a[3] = less_128(v >> 8);
  }
  static __device__ __forceinline__ void multiply_narrow(Sum* sums, const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    multiply_narrow_bf16(sums, a, b0, b1);
  }
  static __device__ __forceinline__ void multiply_ones(Sum (&sums)[4], uint32_t b0, uint32_t b1) {
    U4Bf16Decoder::multiply_ones(sums, b0, b1);
  }
  static __device__ __forceinline__ void add_group(const Group& group, const float (&input_sums)[2],
                                                   const Sum (&group_sums)[4], Sum (&sums)[4]) {
    const float2 scales = scales_of(group);
    add_scaled(scales.x, 128 - zero_of(group.x), input_sums, group_sums, sums);
    add_scaled(scales.y, 128 - zero_of(group.y), input_sums, group_sums + 2, sums + 2);
  }
};

}  // namespace halley::cuda
