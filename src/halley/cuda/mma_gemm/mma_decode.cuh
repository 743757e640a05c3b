// Codes of 4 bits to operands of mma.sync, in registers: one decoder for each kind.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "halley/cuda/gemm/register_bits.cuh"
#include "halley/cuda/mma_gemm/mma_arguments.h"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/mma.cuh"

namespace halley::cuda {

// A unit is the inputs of 64 bytes of a token: 64 of s8, 32 of 16 bits. A decoder has:
//   Sum          of the products
//   kKind
//   kUnits       of a chunk
//   Groups       a lane's parameters of the groups of a unit
//   load_groups()  of a unit, from the entry of the lane's outputs in a chunk's first group
//   decode()     eight registers: two operands a of the unit, from the 16 bytes of its 64 inputs
//   multiply()   both of them with a unit of eight tokens

/// Where the parameters of a step of 32 inputs lie, from those of the first group on.
struct GroupSteps {
  int shift = 0;             // log2 of a group's steps
  uint32_t pitch_bytes = 0;  // from a group to the next

  __device__ __forceinline__ uint32_t offset_of(int step) const {
    return (static_cast<uint32_t>(step) >> shift) * pitch_bytes;
  }
};

/// Both operands of 64 inputs of s8.
struct S8Multiply {
  static __device__ __forceinline__ void multiply(int32_t (&sums)[4], const uint32_t (&a)[8],
                                                  const uint32_t (&b)[4]) {
    ptx::mma_sync<ptx::MmaS8>(sums, a, b[0], b[1]);
    ptx::mma_sync<ptx::MmaS8>(sums, a + 4, b[2], b[3]);
  }
};

struct MmaU4S8 : S8Multiply {
  using Sum = int32_t;
  static constexpr MmaKind kKind = MmaKind::kU4S8;
  static constexpr int kUnits = 2;
  struct Groups {};

  static __device__ __forceinline__ Groups load_groups(uint32_t, int, GroupSteps) { return {}; }

  /// Codes are stored less 8. A nibble becomes the high half of a byte, the low half zero: 16 times
  /// the number without sign extension; 1/16 is in the output's scale. The two outputs of a lane
  /// lie in the halves of a byte, so that both are one mask away from their places (Liu et al.
  /// 2024, section 4.3: "location switch" and "zero extension").
  static __device__ __forceinline__ void decode(uint32_t (&a)[8], int /*unit*/, const uint4& codes,
                                                const Groups&) {
    constexpr uint32_t kHigh = 0xF0F0F0F0u;
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[2 * i] = words[i] << 4 & kHigh;
      a[2 * i + 1] = words[i] & kHigh;
    }
  }
};

struct MmaU4GroupS8 : S8Multiply {
  using Sum = int32_t;
  static constexpr MmaKind kKind = MmaKind::kU4GroupS8;
  static constexpr int kUnits = 2;
  struct Groups {
    uint32_t of_step[2];  // scale and offset of both outputs, of 32 inputs each
  };

  static __device__ __forceinline__ Groups load_groups(uint32_t entry, int unit, GroupSteps steps) {
    Groups groups;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      groups.of_step[s] = ptx::ld_shared_b32(entry + steps.offset_of(2 * unit + s));
    }
    return groups;
  }

  /// Four numbers at a time: code * scale + offset lies in [0, 255] in every byte, so that nothing
  /// is carried from byte to byte; the offset is 128 too large, which the last step takes back.
  static __device__ __forceinline__ void decode(uint32_t (&a)[8], int /*unit*/, const uint4& codes,
                                                const Groups& groups) {
    constexpr uint32_t kCodes = 0x0F0F0F0Fu, kSigns = 0x80808080u;
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint32_t group = groups.of_step[s];
      const uint32_t scale = group & 255u, upper_scale = group >> 16 & 255u;
      const uint32_t offset = __byte_perm(group, 0, 0x1111);
      const uint32_t upper_offset = __byte_perm(group, 0, 0x3333);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = words[2 * s + i];
        a[4 * s + 2 * i] = ((word & kCodes) * scale + offset) ^ kSigns;
        a[4 * s + 2 * i + 1] = ((word >> 4 & kCodes) * upper_scale + upper_offset) ^ kSigns;
      }
    }
  }
};

/// Parameters of 16 bits of a lane's two outputs, each twice in a register.
struct MmaGroupPairs {
  uint32_t scale, zero, upper_scale, upper_zero;
};

__device__ __forceinline__ MmaGroupPairs load_pairs(uint32_t entry) {
  const uint2 group = ptx::ld_shared_b32x2(entry);
  return {.scale = __byte_perm(group.x, 0, 0x1010),
          .zero = __byte_perm(group.x, 0, 0x3232),
          .upper_scale = __byte_perm(group.y, 0, 0x1010),
          .upper_zero = __byte_perm(group.y, 0, 0x3232)};
}

/// Codes below an exponent whose lowest bit stands for 1: of 1024 + code less 1024 + zero it is
/// exactly code - zero, and four bits higher 1024 + 16 * code times 1/16 less 64 + zero. The
/// product with the scale is rounded once.
struct MmaF16Pairs {
  static constexpr MmaKind kKind = MmaKind::kU4F16;

  /// Of the codes in the lowest bits of both halves, and of those above them.
  static __device__ __forceinline__ uint32_t lower(uint32_t pairs, const MmaGroupPairs& group) {
    const auto number = bits_as<__half2>((pairs & 0x000F000Fu) | 0x64006400u);
    return word_of(
        __hmul2(__hsub2(number, bits_as<__half2>(group.zero)), bits_as<__half2>(group.scale)));
  }
  static __device__ __forceinline__ uint32_t upper(uint32_t pairs, const MmaGroupPairs& group) {
    const auto number = bits_as<__half2>((pairs & 0x00F000F0u) | 0x64006400u);
    const auto sixteenth = bits_as<__half2>(0x2C002C00u);
    return word_of(__hmul2(__hfma2(number, sixteenth, bits_as<__half2>(group.upper_zero)),
                           bits_as<__half2>(group.upper_scale)));
  }
  static __device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t* a, uint32_t b0,
                                                  uint32_t b1) {
    ptx::mma_sync<ptx::MmaF16>(sums, a, b0, b1);
  }
};

/// The same with the exponent of 128, whose mantissa has room for one code alone.
struct MmaBf16Pairs {
  static constexpr MmaKind kKind = MmaKind::kU4Bf16;

  static __device__ __forceinline__ uint32_t lower(uint32_t pairs, const MmaGroupPairs& group) {
    return number(pairs, group.scale, group.zero);
  }
  static __device__ __forceinline__ uint32_t upper(uint32_t pairs, const MmaGroupPairs& group) {
    return number(pairs >> 4, group.upper_scale, group.upper_zero);
  }
  static __device__ __forceinline__ void multiply(float (&sums)[4], const uint32_t* a, uint32_t b0,
                                                  uint32_t b1) {
    ptx::mma_sync<ptx::MmaBf16>(sums, a, b0, b1);
  }

 private:
  static __device__ __forceinline__ uint32_t number(uint32_t pairs, uint32_t scale, uint32_t zero) {
    const auto code = bits_as<__nv_bfloat162>((pairs & 0x000F000Fu) | 0x43004300u);
    return word_of(
        __hmul2(__hsub2(code, bits_as<__nv_bfloat162>(zero)), bits_as<__nv_bfloat162>(scale)));
  }
};

/// Codes as numbers of 16 bits.
template <typename Pairs>
struct MmaU4Numbers {
  using Sum = float;
  static constexpr MmaKind kKind = Pairs::kKind;
  static constexpr int kUnits = 4;
  using Groups = MmaGroupPairs;

  /// The entry of the group of step `unit`.
  static __device__ __forceinline__ Groups load_groups(uint32_t entry, int unit, GroupSteps steps) {
    return load_pairs(entry + steps.offset_of(unit));
  }

  static __device__ __forceinline__ void decode(uint32_t (&a)[8], int unit, const uint4& codes,
                                                const Groups& group) {
    const uint32_t words[2] = {unit % 2 == 0 ? codes.x : codes.z,
                               unit % 2 == 0 ? codes.y : codes.w};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t pairs = words[i] >> (8 * half);
        a[4 * i + 2 * half] = Pairs::lower(pairs, group);
        a[4 * i + 2 * half + 1] = Pairs::upper(pairs, group);
      }
    }
  }

  static __device__ __forceinline__ void multiply(Sum (&sums)[4], const uint32_t (&a)[8],
                                                  const uint32_t (&b)[4]) {
    Pairs::multiply(sums, a, b[0], b[1]);
    Pairs::multiply(sums, a + 4, b[2], b[3]);
  }
};
struct MmaU4F16 : MmaU4Numbers<MmaF16Pairs> {};
struct MmaU4Bf16 : MmaU4Numbers<MmaBf16Pairs> {};

/// Blocks of 128 inputs, whose sums in s32 are scaled: kUnits and the rest are those of S8 where
/// activations have 8 bits, of S4 where they have 4.
struct MmaS4Blocks {
  using Sum = float;
  static constexpr MmaKind kKind = MmaKind::kS4Blocks;
  using S8 = MmaU4S8;

  /// 64 inputs are one operand of s4. Inputs may come in any order that weights and activations
  /// share: nibble 2i of a register is input 4c + i of lane 4g + c, nibble 2i + 1 that 16 further.
  /// So both words of a weight, and both registers of s8 activations, which hold 4-bit numbers, are
  /// joined by a shift and a choice of bits.
  struct S4 {
    using Sum = int32_t;
    static constexpr int kUnits = 2;
    struct Groups {};

    static __device__ __forceinline__ Groups load_groups(uint32_t, int, GroupSteps) { return {}; }

    /// Four registers alone. Codes are stored less 8, in two's complement.
    static __device__ __forceinline__ void decode(uint32_t (&a)[8], int /*unit*/,
                                                  const uint4& codes, const Groups&) {
      a[0] = low_then_high(codes.x, codes.y << 4);
      a[1] = low_then_high(codes.x >> 4, codes.y);
      a[2] = low_then_high(codes.z, codes.w << 4);
      a[3] = low_then_high(codes.z >> 4, codes.w);
    }

    static __device__ __forceinline__ void multiply(Sum (&sums)[4], const uint32_t (&a)[8],
                                                    const uint32_t (&b)[4]) {
      ptx::mma_sync<ptx::MmaS4>(sums, a, low_then_high(b[0], b[1] << 4),
                                low_then_high(b[2], b[3] << 4));
    }

   private:
    static __device__ __forceinline__ uint32_t low_then_high(uint32_t low, uint32_t high) {
      return (low & 0x0F0F0F0Fu) | (high & 0xF0F0F0F0u);
    }
  };
};

}  // namespace halley::cuda
