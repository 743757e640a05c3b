// Codes of 8 bits to fragments of operand A, in registers: as mixed_decode.cuh says, for tiles of
// more than 16 tokens alone.
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
  /// and the product with the scale is rounded once. `u` and `v`: 16 inputs.
  static __device__ __forceinline__ void decode_words(uint32_t* a, uint32_t u, uint32_t v,
                                                      const GroupPairs& group) {
    asm volatile(
        "prmt.b32 %0, %4, %10, 0x4140; prmt.b32 %1, %4, %10, 0x4342;\n"
        "prmt.b32 %2, %5, %10, 0x4140; prmt.b32 %3, %5, %10, 0x4342;\n"
        "sub.rn.f16x2 %0, %0, %7; sub.rn.f16x2 %1, %1, %9;\n"
        "sub.rn.f16x2 %2, %2, %7; sub.rn.f16x2 %3, %3, %9;\n"
        "mul.rn.f16x2 %0, %0, %6; mul.rn.f16x2 %1, %1, %8;\n"
        "mul.rn.f16x2 %2, %2, %6; mul.rn.f16x2 %3, %3, %8;"
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
  /// bf16: 5 instructions for two weights. In bf16 alone they are 6: seven bits and the eighth are
  /// numbers of their own, which are added.
  static __device__ __forceinline__ void decode_word(uint32_t* a, uint32_t codes,
                                                     const GroupPairs& group) {
    asm volatile(
        "{.reg .b32 t, u, v, w;\n"
        "prmt.b32 t, %2, %7, 0x7404; prmt.b32 u, %2, %7, 0x7414;\n"
        "prmt.b32 v, %2, %7, 0x7424; prmt.b32 w, %2, %7, 0x7434;\n"
        "fma.rn.f32 t, t, %3, %4; fma.rn.f32 u, u, %3, %4;\n"
        "fma.rn.f32 v, v, %5, %6; fma.rn.f32 w, w, %5, %6;\n"
        "cvt.rn.bf16x2.f32 %0, u, t; cvt.rn.bf16x2.f32 %1, w, v;}"
        : "=&r"(a[0]), "=&r"(a[1])
        : "r"(codes), "r"(group.scale), "r"(group.zero), "r"(group.upper_scale),
          "r"(group.upper_zero), "r"(0x47000000u));
  }

  static __device__ __forceinline__ void decode_step(uint32_t (&a)[8], const uint4& codes,
                                                     const GroupPairs& pairs) {
    decode_word(a, codes.x, pairs);
    decode_word(a + 2, codes.y, pairs);
    decode_word(a + 4, codes.z, pairs);
    decode_word(a + 6, codes.w, pairs);
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
};

}  // namespace halley::cuda
