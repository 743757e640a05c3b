// Codes of few bits to the operands of mma.sync, in registers.
//
// No code is subtracted from: its bits are put where they count as ones into the mantissa of a
// number `base`, which makes base + code, exactly. A product with ones gives the sum of x, of which
// base (and the zero) times as much is taken off at the end of a group.
#pragma once

#include <cstdint>

#include "halley/cuda/gemv/gemv_layout.h"
#include "halley/cuda/ptx/mma.cuh"
#include "halley/cuda/ptx/packed_math.cuh"

namespace halley::cuda {

/// What codes are multiplied with, and their instruction: 16 outputs by 8 rows of x, over a step's
/// half.
struct GemvF16 {
  using Sum = float;
  static constexpr GemvInputs kInputs = GemvInputs::kNumbers;
  static constexpr int kStepInputs = 32;
  static constexpr uint32_t kOnes = 0x3C003C00u;
  static constexpr int kMantissaBits = 10;
  /// A number 2^exponent.
  static constexpr uint32_t power_bits(int exponent) {
    return static_cast<uint32_t>(15 + exponent) << 10;
  }
  __device__ static void multiply(const uint32_t* w, uint32_t x_low, uint32_t x_high, Sum* sums) {
    ptx::mma_sync<ptx::MmaF16>(sums, w, x_low, x_high);
  }
};

struct GemvBf16 {
  using Sum = float;
  static constexpr GemvInputs kInputs = GemvInputs::kNumbers;
  static constexpr int kStepInputs = 32;
  static constexpr uint32_t kOnes = 0x3F803F80u;
  static constexpr int kMantissaBits = 7;
  static constexpr uint32_t power_bits(int exponent) {
    return static_cast<uint32_t>(127 + exponent) << 7;
  }
  __device__ static void multiply(const uint32_t* w, uint32_t x_low, uint32_t x_high, Sum* sums) {
    ptx::mma_sync<ptx::MmaBf16>(sums, w, x_low, x_high);
  }
};

struct GemvS8 {
  using Sum = int;
  static constexpr GemvInputs kInputs = GemvInputs::kS8;
  static constexpr int kStepInputs = 64;
  static constexpr uint32_t kOnes = 0x01010101u;
  __device__ static void multiply(const uint32_t* w, uint32_t x_low, uint32_t x_high, Sum* sums) {
    ptx::mma_sync<ptx::MmaS8>(sums, w, x_low, x_high);
  }
};

/// Both halves of a register.
constexpr uint32_t gemv_pair(uint32_t bits) { return bits | bits << 16; }

/// To the left, or to the right where negative.
__device__ __forceinline__ uint32_t shifted(uint32_t word, int left) {
  return left >= 0 ? word << left : word >> -left;
}

/// kBits of a code, multiplied by 2^kExponent, as numbers (gemv_layout.h). `a` is what
/// multiply() takes: a[0..3] of the first half of the step, a[4..7] of the second.
template <class Numbers, int kBits, int kExponent>
struct GemvPlane;

/// 8 bits into the ten of f16: base 1024.
template <>
struct GemvPlane<GemvF16, 8, 0> {
  static constexpr int kParts = 1;
  static constexpr float base(int) { return 1024; }
  __device__ static __forceinline__ void decode(const uint32_t* words, int step, int,
                                                uint32_t (&a)[8]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        a[2 * r + row] = __byte_perm(words[4 * step + 2 * row + r / 2], 0x64646464u,
                                     r % 2 == 0 ? 0x4240 : 0x4341);
      }
    }
  }
};

/// bf16 has seven: the others are part 0, the highest is part 1, of base 128 each.
template <>
struct GemvPlane<GemvBf16, 8, 0> {
  static constexpr int kParts = 2;
  static constexpr float base(int) { return 256; }
  __device__ static __forceinline__ void decode(const uint32_t* words, int step, int part,
                                                uint32_t (&a)[8]) {
    constexpr uint32_t kMagic = gemv_pair(GemvBf16::power_bits(7));
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const uint32_t word = words[4 * step + 2 * row + r / 2] >> (8 * (r % 2));
        a[2 * r + row] =
            ptx::lop3_b32<ptx::kAndOr>(word, gemv_pair(part == 0 ? 0x7F : 0x80), kMagic);
      }
    }
  }
};

/// 2 bits: bases 16 and 4, of outputs in the lower and the upper half of a tile, so that the codes
/// of both are in place after one shift.
template <class Numbers>
struct GemvPlane<Numbers, 2, 0> {
  static constexpr int kParts = 1;
  static constexpr float base(int row) { return row == 0 ? 16 : 4; }
  __device__ static __forceinline__ void decode(const uint32_t* words, int step, int,
                                                uint32_t (&a)[8]) {
    constexpr int kPlace = Numbers::kMantissaBits - 4;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const uint32_t word = shifted(words[step], kPlace - 4 * r);
      a[2 * r] = ptx::lop3_b32<ptx::kAndOr>(word, gemv_pair(3u << kPlace),
                                            gemv_pair(Numbers::power_bits(4)));
      a[2 * r + 1] = ptx::lop3_b32<ptx::kAndOr>(word, gemv_pair(3u << (kPlace + 2)),
                                                gemv_pair(Numbers::power_bits(2)));
    }
  }
};

/// 1 bit: bases 4 and 2, times 2^kExponent.
template <class Numbers, int kExponent>
struct GemvPlane<Numbers, 1, kExponent> {
  static constexpr int kParts = 1;
  static constexpr float base(int row) {
    return static_cast<float>((row == 0 ? 4 : 2) << kExponent);
  }
  __device__ static __forceinline__ void decode(const uint32_t* words, int step, int,
                                                uint32_t (&a)[8]) {
    constexpr int kPlace = Numbers::kMantissaBits - 2;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const uint32_t word = shifted(words[step / 2], kPlace - (step % 2 * 8 + 2 * r));
      a[2 * r] = ptx::lop3_b32<ptx::kAndOr>(word, gemv_pair(1u << kPlace),
                                            gemv_pair(Numbers::power_bits(2 + kExponent)));
      a[2 * r + 1] = ptx::lop3_b32<ptx::kAndOr>(word, gemv_pair(1u << (kPlace + 1)),
                                                gemv_pair(Numbers::power_bits(1 + kExponent)));
    }
  }
};

/// Codes as s8: nothing is added.
template <>
struct GemvPlane<GemvS8, 2, 0> {
  static constexpr int kParts = 1;
  static constexpr float base(int) { return 0; }
  __device__ static __forceinline__ void decode(const uint32_t* words, int step, int,
                                                uint32_t (&a)[8]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        a[2 * r + row] = words[2 * step + row] >> (2 * r) & 0x03030303u;
      }
    }
  }
};
template <>
struct GemvPlane<GemvS8, 1, 0> {
  static constexpr int kParts = 1;
  static constexpr float base(int) { return 0; }
  __device__ static __forceinline__ void decode(const uint32_t* words, int step, int,
                                                uint32_t (&a)[8]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        a[2 * r + row] = words[step] >> (4 * row + r) & 0x01010101u;
      }
    }
  }
};

/// What is multiplied for codes of kBits: their parts are added up by the sums.
template <class Numbers, int kBits>
struct GemvDecoder {
  using Plane = GemvPlane<Numbers, kBits, 0>;
  static constexpr int kParts = Plane::kParts;
  static constexpr float base(int row) { return Plane::base(row); }
  __device__ static __forceinline__ void decode(const uint32_t* words, int step, int part,
                                                uint32_t (&a)[8]) {
    Plane::decode(words, step, part, a);
  }
};
/// The lower two bits, and the highest.
template <class Numbers>
struct GemvDecoder<Numbers, 3> {
  using Low = GemvPlane<Numbers, 2, 0>;
  using High = GemvPlane<Numbers, 1, 2>;
  static constexpr int kParts = 2;
  static constexpr float base(int row) { return Low::base(row) + High::base(row); }
  __device__ static __forceinline__ void decode(const uint32_t* words, int step, int part,
                                                uint32_t (&a)[8]) {
    if (part == 0) {
      Low::decode(words, step, 0, a);
    } else {
      High::decode(words + 4, step, 0, a);
    }
  }
};

}  // namespace halley::cuda
