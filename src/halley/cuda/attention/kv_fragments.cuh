// Fragments of the KV cache: rows of any type in shared memory to MMA operands in registers.
//
// The k dimension may be permuted if both operands agree, and so may the output columns. Lane 4g +
// c therefore reads what is contiguous: of a key, the units c, c + 4, ...; of a value, the units g,
// g + 8, .... Queries and outputs use the same permutation. Quantized values become the f16 of the
// same integer (or e4m3 value), exactly; scales and zeros belong to rows and are applied to scores
// and softmax weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/operand.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/packed_math.cuh"
#include "halley/kernels/kv/kv_dtype.h"

namespace halley::attention {

constexpr int min_of(int a, int b) { return a < b ? a : b; }

/// Sizes that follow from the cache type and the padded head size.
template <KvDType kType, int kHeadDim>
struct KvRows {
  static constexpr int kBits = kType == KvDType::kInt4                             ? 4
                               : kType == KvDType::kF16 || kType == KvDType::kBf16 ? 16
                                                                                   : 8;
  static constexpr bool kHasScales = has_scales(kType);
  static constexpr bool kHasZeros = kType == KvDType::kInt8 || kType == KvDType::kInt4;
  static constexpr Operand kOperand = kType == KvDType::kBf16 ? Operand::kBf16 : Operand::kF16;
  static constexpr int kRowBytes = kHeadDim * kBits / 8;
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kElementsPerWord = 32 / kBits;

  static constexpr int kKeyUnitBytes = min_of(16, kRowBytes / 4);
  static constexpr int kKeyUnits = kRowBytes / 4 / kKeyUnitBytes;  // of a lane
  static constexpr int kKeyUnitElements = kKeyUnitBytes * 8 / kBits;
  static constexpr int kKeyUnitSteps = kKeyUnitElements / 4;  // a k-step takes 4 elements of a lane
  static constexpr int kSteps = kKeyUnits * kKeyUnitSteps;    // kHeadDim / 16

  static constexpr int kValueUnitBytes = min_of(16, kRowBytes / 8);
  static constexpr int kValueUnits = kRowBytes / 8 / kValueUnitBytes;
  static constexpr int kValueUnitElements = kValueUnitBytes * 8 / kBits;
  static constexpr int kColumns = kValueUnits * kValueUnitElements;  // kHeadDim / 8
};

/// Index in a lane's key unit of the element in half `half` of operand word `word` (0, 1) of k-step
/// `step`, as key_operand() below has it.
template <KvDType kType>
constexpr __host__ __device__ int key_element(int step, int word, int half) {
  if (kType != KvDType::kInt4) return 4 * step + 2 * word + half;
  return 8 * (step / 2) + 2 * (step % 2) + word + 4 * half;
}

/// kBytes from device or shared memory, aligned to kBytes.
template <int kBytes>
struct Words {
  uint32_t words[kBytes / 4];

  static __device__ Words load_shared(uint32_t from) {
    Words result;
    if constexpr (kBytes == 16) {
      const uint4 all = ptx::ld_shared_b32x4(from);
      result.words[0] = all.x;
      result.words[1] = all.y;
      result.words[2] = all.z;
      result.words[3] = all.w;
    } else if constexpr (kBytes == 8) {
      const uint2 all = ptx::ld_shared_b32x2(from);
      result.words[0] = all.x;
      result.words[1] = all.y;
    } else {
      result.words[0] = ptx::ld_shared_b32(from);
    }
    return result;
  }

  static __device__ Words load(const std::byte* from) {
    Words result;
    if constexpr (kBytes == 16) {
      const uint4 all = *reinterpret_cast<const uint4*>(from);
      result.words[0] = all.x;
      result.words[1] = all.y;
      result.words[2] = all.z;
      result.words[3] = all.w;
    } else if constexpr (kBytes == 8) {
      const uint2 all = *reinterpret_cast<const uint2*>(from);
      result.words[0] = all.x;
      result.words[1] = all.y;
    } else {
      result.words[0] = *reinterpret_cast<const uint32_t*>(from);
    }
    return result;
  }
};

constexpr uint32_t kF16Of1024 = 0x64006400u;  // 1024: the last mantissa bit counts ones
constexpr uint32_t kF16OfMinus1024 = 0xE400E400u;
constexpr uint32_t kF16OfMinus64 = 0xD400D400u;
constexpr uint32_t kF16OfSixteenth = 0x2C002C00u;

/// Nibble 0 of both halves of `packed` as f16; high_nibbles(): nibble 1.
__device__ inline uint32_t low_nibbles(uint32_t packed) {
  return ptx::add_rn_f16x2(ptx::lop3_b32<ptx::kAndOr>(packed, 0x000F000Fu, kF16Of1024),
                           kF16OfMinus1024);
}
__device__ inline uint32_t high_nibbles(uint32_t packed) {  // 1024 + 16 q
  return ptx::fma_rn_f16x2(ptx::lop3_b32<ptx::kAndOr>(packed, 0x00F000F0u, kF16Of1024),
                           kF16OfSixteenth, kF16OfMinus64);
}

/// Bytes 0 and 1 (or 2 and 3) of `packed` as two f16.
template <KvDType kType, bool kUpper>
__device__ inline uint32_t bytes_to_f16x2(uint32_t packed) {
  if constexpr (kType == KvDType::kFp8E4M3) {
    return ptx::cvt_rn_f16x2_e4m3x2(kUpper ? packed >> 16 : packed & 0xFFFFu);
  } else {
    const uint32_t biased = __byte_perm(packed, kF16Of1024, kUpper ? 0x7372u : 0x7170u);
    return ptx::add_rn_f16x2(biased, kF16OfMinus1024);
  }
}

/// The two operand words of k-step `step` of a key unit.
template <KvDType kType, typename Unit>
__device__ inline void key_operand(const Unit& unit, int step, uint32_t (&b)[2]) {
  if constexpr (kType == KvDType::kF16 || kType == KvDType::kBf16) {
    b[0] = unit.words[2 * step];
    b[1] = unit.words[2 * step + 1];
  } else if constexpr (kType == KvDType::kInt4) {
    const uint32_t packed = unit.words[step / 2] >> (step % 2 * 8);
    b[0] = low_nibbles(packed);
    b[1] = high_nibbles(packed);
  } else {
    b[0] = bytes_to_f16x2<kType, false>(unit.words[step]);
    b[1] = bytes_to_f16x2<kType, true>(unit.words[step]);
  }
}

/// The elements of one word of two tokens' values, as pairs (first, second).
template <KvDType kType>
__device__ inline void pair_values(uint32_t first, uint32_t second,
                                   uint32_t (&pairs)[KvRows<kType, 64>::kElementsPerWord]) {
  if constexpr (kType == KvDType::kF16 || kType == KvDType::kBf16) {
    pairs[0] = __byte_perm(first, second, 0x5410u);
    pairs[1] = __byte_perm(first, second, 0x7632u);
  } else if constexpr (kType == KvDType::kInt4) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t packed = __byte_perm(first, second, half == 0 ? 0x5410u : 0x7632u);
      pairs[4 * half] = low_nibbles(packed);
      pairs[4 * half + 1] = high_nibbles(packed);
      pairs[4 * half + 2] = low_nibbles(packed >> 8);
      pairs[4 * half + 3] = high_nibbles(packed >> 8);
    }
  } else {
    const uint32_t lower = __byte_perm(first, second, 0x5140u);
    const uint32_t upper = __byte_perm(first, second, 0x7362u);
    pairs[0] = bytes_to_f16x2<kType, false>(lower);
    pairs[1] = bytes_to_f16x2<kType, true>(lower);
    pairs[2] = bytes_to_f16x2<kType, false>(upper);
    pairs[3] = bytes_to_f16x2<kType, true>(upper);
  }
}

}  // namespace halley::attention
