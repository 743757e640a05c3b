// Codes of 4 bits to fragments of operand A, in registers: one decoder for each MixedKind (those of
// 8 bits are in mixed_u8_decode.cuh).
//
// Instructions are in order (ptx/packed_math.cuh): ptxas then keeps decoding between the products
// that are in flight. As plain C++ it moved the instructions, found hazards and serialised the
// tensor cores.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/cuda/gemm/register_bits.cuh"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/ptx/decode.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/mma.cuh"
#include "halley/cuda/ptx/packed_math.cuh"
#include "halley/cuda/ptx/wgmma.cuh"

namespace halley::cuda {

namespace in_order = ptx::in_order;

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
    constexpr uint32_t kHigh = 0xF0F0F0F0u;
    a[0] = in_order::and_b32(in_order::shl_b32(u, 4), kHigh);
    a[1] = in_order::and_b32(u, kHigh);
    a[2] = in_order::and_b32(in_order::shl_b32(v, 4), kHigh);
    a[3] = in_order::and_b32(v, kHigh);
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
    ptx::wgmma_rs<ptx::WgmmaS8>(sums, a, tokens, keeps);
  }
  static __device__ __forceinline__ void multiply_narrow(Sum (&sums)[4], const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    ptx::mma_sync<ptx::MmaS8>(sums, a, b0, b1);
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
    return ptx::ld_shared_b32(address);
  }

  static __device__ __forceinline__ Numbers numbers_of(const Group& group) {
    Numbers numbers;
    numbers.scale = in_order::prmt_b32(group, 0, 0x4440);
    numbers.offset = in_order::prmt_b32(group, 0, 0x1111);
    numbers.upper_scale = in_order::prmt_b32(group, 0, 0x4442);
    numbers.upper_offset = in_order::prmt_b32(group, 0, 0x3333);
    return numbers;
  }

  /// Four numbers at a time: code * scale + offset lies in [0, 255] in every byte, so that nothing
  /// is carried from byte to byte. They are 128 too large, and multiplied as u8: the epilogue takes
  /// off 128 times the sum of the token's codes.
  static __device__ __forceinline__ void decode(uint32_t (&a)[4], uint32_t u, uint32_t v,
                                                const Numbers& group) {
    constexpr uint32_t kCodes = 0x0F0F0F0Fu;
    const auto scaled = [&](uint32_t codes, uint32_t scale, uint32_t offset) {
      return in_order::mad_lo_u32(in_order::and_b32(codes, kCodes), scale, offset);
    };
    a[0] = scaled(u, group.scale, group.offset);
    a[2] = scaled(v, group.scale, group.offset);
    a[1] = scaled(in_order::shr_u32(u, 4), group.upper_scale, group.upper_offset);
    a[3] = scaled(in_order::shr_u32(v, 4), group.upper_scale, group.upper_offset);
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
    ptx::wgmma_rs<ptx::WgmmaU8S8>(sums, a, tokens, keeps);
  }
  static __device__ __forceinline__ void multiply_narrow(Sum (&sums)[4], const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    ptx::mma_sync<ptx::MmaU8S8>(sums, a, b0, b1);
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
  pairs.scale = in_order::prmt_b32(group.x, 0, 0x1010);
  pairs.zero = in_order::prmt_b32(group.x, 0, 0x3232);
  pairs.upper_scale = in_order::prmt_b32(group.y, 0, 0x1010);
  pairs.upper_zero = in_order::prmt_b32(group.y, 0, 0x3232);
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
    return ptx::ld_shared_b32x2(address);
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
    constexpr uint32_t kSixteenth = 0x2C002C00u;  // 1/16, twice
    const uint32_t shifted = in_order::shr_u32(codes, 8);
    const auto under_1024 = [](uint32_t word, uint32_t mask) {
      return in_order::lop3_b32<ptx::kAndOr>(word, mask, 0x64006400);
    };
    a[0] = under_1024(codes, 0x000F000F);
    a[2] = under_1024(shifted, 0x000F000F);
    a[0] = in_order::sub_rn_f16x2(a[0], group.zero);
    a[2] = in_order::sub_rn_f16x2(a[2], group.zero);
    a[0] = in_order::mul_rn_f16x2(a[0], group.scale);
    a[2] = in_order::mul_rn_f16x2(a[2], group.scale);
    a[1] = under_1024(codes, 0x00F000F0);
    a[3] = under_1024(shifted, 0x00F000F0);
    a[1] = in_order::fma_rn_f16x2(a[1], kSixteenth, group.upper_zero);
    a[3] = in_order::fma_rn_f16x2(a[3], kSixteenth, group.upper_zero);
    a[1] = in_order::mul_rn_f16x2(a[1], group.upper_scale);
    a[3] = in_order::mul_rn_f16x2(a[3], group.upper_scale);
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
    ptx::wgmma_rs<ptx::WgmmaF16>(sums, a, tokens, keeps);
    ptx::wgmma_rs<ptx::WgmmaF16>(sums, a + 4, tokens + 2, 1);  // 32 bytes further
  }

  /// Without the exponents of 1024 and -64, as codes.
  static __device__ __forceinline__ PlainZeros zeros_of(const Group& group) {
    PlainZeros zeros;
    constexpr uint32_t kMantissas = 0x03FF03FF;
    zeros.lower = in_order::and_b32(in_order::prmt_b32(group.x, 0, 0x3232), kMantissas);
    zeros.upper = in_order::and_b32(in_order::prmt_b32(group.y, 0, 0x3232), kMantissas);
    return zeros;
  }
  static __device__ __forceinline__ float2 scales_of(const Group& group) {
    return {__low2float(bits_as<__half2>(group.x)) * 0x1p24f,
            __low2float(bits_as<__half2>(group.y)) * 0x1p20f};
  }
  static __device__ __forceinline__ void decode_less_zero(uint32_t (&a)[4], uint32_t codes,
                                                          const PlainZeros& zeros) {
    const uint32_t shifted = in_order::shr_u32(codes, 8);
    a[0] = in_order::and_b32(codes, 0x000F000F);
    a[1] = in_order::and_b32(codes, 0x00F000F0);
    a[2] = in_order::and_b32(shifted, 0x000F000F);
    a[3] = in_order::and_b32(shifted, 0x00F000F0);
    a[0] = in_order::sub_rn_f16x2(a[0], zeros.lower);
    a[1] = in_order::sub_rn_f16x2(a[1], zeros.upper);
    a[2] = in_order::sub_rn_f16x2(a[2], zeros.lower);
    a[3] = in_order::sub_rn_f16x2(a[3], zeros.upper);
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
    ptx::mma_sync<ptx::MmaF16>(sums, a, b0, b1);
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
    return ptx::ld_shared_b32x2(address);
  }
  static __device__ __forceinline__ Numbers numbers_of(const Group& group) { return group; }
  static __device__ __forceinline__ GroupPairs pairs_of(const Group& group) {
    return pairs_of_halves(group);
  }

  /// The low codes of both halves, under the exponent of 128.
  static __device__ __forceinline__ uint32_t under_128(uint32_t codes) {
    return in_order::lop3_b32<ptx::kAndOr>(codes, 0x000F000F, 0x43004300);
  }

  /// As U4F16Decoder with the exponent of 128: the mantissa has room for one code alone, so that
  /// all four pairs are shifted down.
  static __device__ __forceinline__ void decode_word(uint32_t* a, uint32_t codes,
                                                     const GroupPairs& group) {
    a[0] = under_128(codes);
    a[2] = under_128(in_order::shr_u32(codes, 8));
    a[0] = in_order::sub_rn_bf16x2(a[0], group.zero);
    a[2] = in_order::sub_rn_bf16x2(a[2], group.zero);
    a[0] = in_order::mul_rn_bf16x2(a[0], group.scale);
    a[2] = in_order::mul_rn_bf16x2(a[2], group.scale);
    a[1] = under_128(in_order::shr_u32(codes, 4));
    a[3] = under_128(in_order::shr_u32(codes, 12));
    a[1] = in_order::sub_rn_bf16x2(a[1], group.upper_zero);
    a[3] = in_order::sub_rn_bf16x2(a[3], group.upper_zero);
    a[1] = in_order::mul_rn_bf16x2(a[1], group.upper_scale);
    a[3] = in_order::mul_rn_bf16x2(a[3], group.upper_scale);
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
    ptx::wgmma_rs<ptx::WgmmaBf16>(sums, a, tokens, keeps);
    ptx::wgmma_rs<ptx::WgmmaBf16>(sums, a + 4, tokens + 2, 1);  // 32 bytes further
  }

  static __device__ __forceinline__ PlainZeros zeros_of(const Group& group) {
    PlainZeros zeros;
    zeros.lower = in_order::prmt_b32(group.x, 0, 0x3232);
    zeros.upper = in_order::prmt_b32(group.y, 0, 0x3232);
    return zeros;
  }
  static __device__ __forceinline__ float2 scales_of(const Group& group) {
    return {__uint_as_float(group.x << 16), __uint_as_float(group.y << 16)};
  }
  static __device__ __forceinline__ void decode_less_zero(uint32_t (&a)[4], uint32_t codes,
                                                          const PlainZeros& zeros) {
    ptx::subtract_u4_bf16x2(a, codes, zeros.lower, zeros.upper);
  }

  /// 128 + code.
  static __device__ __forceinline__ void decode_plain(uint32_t (&a)[4], uint32_t codes) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = (codes >> (4 * i) & 0x000F000Fu) | 0x43004300u;
  }
  static __device__ __forceinline__ void multiply_narrow(Sum* sums, const uint32_t (&a)[4],
                                                         uint32_t b0, uint32_t b1) {
    ptx::mma_sync<ptx::MmaBf16>(sums, a, b0, b1);
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
