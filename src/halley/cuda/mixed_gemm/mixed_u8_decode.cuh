// Codes of 8 bits to fragments of operand A, in registers: as mixed_decode.cuh says, where codes of
// 16 inputs are two words, of a thread's row g and of g + 8.
#pragma once

#include <cstdint>

#include "halley/cuda/mixed_gemm/mixed_decode.cuh"
#include "halley/cuda/ptx/decode.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/mma.cuh"
#include "halley/cuda/ptx/packed_math.cuh"

namespace halley::cuda {

struct U8F16Decoder {
  using Sum = float;
  static constexpr MixedKind kKind = MixedKind::kU8F16;
  static constexpr int kRegisters = 8;
  using Group = uint2;
  using Numbers = Group;

  static __device__ __forceinline__ Group load_group(uint32_t address) {
    return ptx::ld_shared_b32x2(address);
  }
  static __device__ __forceinline__ Numbers numbers_of(const Group& group) { return group; }
  static __device__ __forceinline__ GroupPairs pairs_of(const Group& group) {
    return pairs_of_halves(group);
  }

  /// A code below the exponent of 1024 is 1024 + code: less 1024 + zero it is exactly code - zero,
  /// and the product with the scale is rounded once. `u` and `v`: 16 inputs of both rows.
  static __device__ __forceinline__ void decode_words(uint32_t* a, uint32_t u, uint32_t v,
                                                      const GroupPairs& group) {
    ptx::dequantize_u8_f16x2(a, u, v,
                             {group.scale, group.zero, group.upper_scale, group.upper_zero});
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
    a[0] = in_order::prmt_b32(u, 0, 0x4240);
    a[2] = in_order::prmt_b32(u, 0, 0x4341);
    a[1] = in_order::prmt_b32(v, 0, 0x4240);
    a[3] = in_order::prmt_b32(v, 0, 0x4341);
    a[0] = in_order::sub_rn_f16x2(a[0], zeros.lower);
    a[2] = in_order::sub_rn_f16x2(a[2], zeros.lower);
    a[1] = in_order::sub_rn_f16x2(a[1], zeros.upper);
    a[3] = in_order::sub_rn_f16x2(a[3], zeros.upper);
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
    ptx::mma_sync<ptx::MmaF16>(sums, a, b0, b1);
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
    return ptx::ld_shared_b32x2(address);
  }
  static __device__ __forceinline__ Numbers numbers_of(const Group& group) { return group; }

  static constexpr uint32_t k32768 = 0x47000000u;  // in f32

  /// Entries have the scale in bf16 and the zero as an integer, which is put under the exponent of
  /// 32768 as codes are.
  static __device__ __forceinline__ GroupPairs pairs_of(const Group& group) {
    GroupPairs pairs;
    pairs.scale = in_order::prmt_b32(group.x, 0, 0x1044);
    pairs.upper_scale = in_order::prmt_b32(group.y, 0, 0x1044);
    const float zero = __uint_as_float(in_order::prmt_b32(group.x, k32768, 0x7324));
    const float upper_zero = __uint_as_float(in_order::prmt_b32(group.y, k32768, 0x7324));
    pairs.zero = __float_as_uint(in_order::mul_rn_f32(zero, -__uint_as_float(pairs.scale)));
    pairs.upper_zero =
        __float_as_uint(in_order::mul_rn_f32(upper_zero, -__uint_as_float(pairs.upper_scale)));
    return pairs;
  }

  /// The mantissa of bf16 has no room for a code. In f32 a code in the second byte below the
  /// exponent of 32768 is 32768 + code, and times the scale (8 bits) less 32768 + zero times the
  /// scale, both of at most 24 bits, it is exactly scale * (code - zero), which is rounded once to
  /// bf16: 5 instructions for two weights.
  /// `codes`: 16 inputs of one row, whose fragments are a[0] and a[2].
  static __device__ __forceinline__ void decode_word(uint32_t* a, uint32_t codes, uint32_t scale,
                                                     uint32_t zero) {
    ptx::dequantize_u8_bf16x2(a, codes, scale, zero);
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
    const float lower = zero_of(group.x) - 128, upper = zero_of(group.y) - 128;
    zeros.lower = in_order::cvt_rn_bf16x2_f32(lower, lower);
    zeros.upper = in_order::cvt_rn_bf16x2_f32(upper, upper);
    return zeros;
  }
  static __device__ __forceinline__ float2 scales_of(const Group& group) {
    return {__uint_as_float(group.x << 16), __uint_as_float(group.y << 16)};
  }

  /// Code less 128 of the bytes 0 and 2: the lower seven bits under the exponent of 128, and -128
  /// or -256 as the highest bit says, are added.
  static __device__ __forceinline__ uint32_t less_128(uint32_t codes) {
    const uint32_t low = ptx::lop3_b32<ptx::kAndOr>(codes, 0x007F007F, 0x43004300);
    constexpr int kNotAndOr = (~ptx::kLopA & ptx::kLopB) | ptx::kLopC;
    return ptx::add_rn_bf16x2(low, ptx::lop3_b32<kNotAndOr>(codes, 0x00800080, 0xC300C300));
  }
  static __device__ __forceinline__ void decode_less_zero(uint32_t (&a)[4], uint32_t u, uint32_t v,
                                                          const PlainZeros& zeros) {
    decode_plain(a, u, v);
    a[0] = in_order::sub_rn_bf16x2(a[0], zeros.lower);
    a[1] = in_order::sub_rn_bf16x2(a[1], zeros.upper);
    a[2] = in_order::sub_rn_bf16x2(a[2], zeros.lower);
    a[3] = in_order::sub_rn_bf16x2(a[3], zeros.upper);
  }

  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t u, uint32_t v) {
    a[0] = less_128(u);
    a[1] = less_128(v);
    a[2] = less_128(u >> 8);
    a[3] = less_128(v >> 8);
  }
  static __device__ __forceinline__ void multiply_narrow(Sum* sums, const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    ptx::mma_sync<ptx::MmaBf16>(sums, a, b0, b1);
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
