// Quantized values of the KV cache as f16 MMA operands of decode attention, without arithmetic.
//
// An integer q of 4 or 8 bits in the lowest bits of an f16 is the subnormal q * 2^-24, which the
// tensor cores multiply exactly. A mask therefore makes an operand of an unsigned quantized value.
// A nibble in bits 4 to 7 is 16 q * 2^-24: the query elements that meet it are divided by 16, and
// so are the outputs in the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/kv_fragments.cuh"
#include "halley/cuda/attention/operand.cuh"

namespace halley::attention {

/// Factor that undoes the 2^-24 of subnormal operands in the accumulators.
template <KvDType kType>
constexpr float denormal_scale() {
  return kType == KvDType::kInt8 || kType == KvDType::kInt4 ? 16777216.0f : 1.0f;
}
/// The same for odd columns of values, which int4 has in its high nibbles.
template <KvDType kType>
constexpr float odd_denormal_scale() {
  return kType == KvDType::kInt4 ? 1048576.0f : denormal_scale<kType>();
}

/// Bytes 0 and 2 of `packed`, each in the low half of 16 bits; odd_bytes(): bytes 1 and 3.
__device__ inline uint32_t even_bytes(uint32_t packed) { return packed & 0x00FF00FFu; }
__device__ inline uint32_t odd_bytes(uint32_t packed) { return __byte_perm(packed, 0u, 0x4341u); }

/// The two A-operand words of k-step `step` of a key unit, in the order of raw_key_element().
template <KvDType kType, typename Unit>
__device__ inline void raw_key_operand(const Unit& unit, int step, uint32_t (&words)[2]) {
  if constexpr (kType == KvDType::kInt4) {
    const uint32_t packed =
        step % 2 == 0 ? unit.words[step / 2] : __byte_perm(unit.words[step / 2], 0u, 0x4341u);
    words[0] = packed & 0x000F000Fu;
    words[1] = packed & 0x00F000F0u;
  } else if constexpr (kType == KvDType::kInt8) {
    words[0] = even_bytes(unit.words[step]);
    words[1] = odd_bytes(unit.words[step]);
  } else {
    key_operand<kType>(unit, step, words);
  }
}

/// Index in a lane's key unit of the element in half `half` of word `word` of k-step `step`.
template <KvDType kType>
constexpr __host__ __device__ int raw_key_element(int step, int word, int half) {
  if (kType == KvDType::kInt8) return 4 * step + word + 2 * half;
  return key_element<kType>(step, word, half);
}

/// The elements of one word of two tokens' values, as pairs (first, second).
template <KvDType kType>
__device__ inline void raw_value_pairs(uint32_t first, uint32_t second,
                                       uint32_t (&pairs)[KvRows<kType, 64>::kElementsPerWord]) {
  if constexpr (kType == KvDType::kInt4) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t packed = __byte_perm(first, second, half == 0 ? 0x5410u : 0x7632u);
      const uint32_t upper = __byte_perm(packed, 0u, 0x4341u);
      pairs[4 * half] = packed & 0x000F000Fu;
      pairs[4 * half + 1] = packed & 0x00F000F0u;
      pairs[4 * half + 2] = upper & 0x000F000Fu;
      pairs[4 * half + 3] = upper & 0x00F000F0u;
    }
  } else if constexpr (kType == KvDType::kInt8) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t packed = __byte_perm(first, second, half == 0 ? 0x5410u : 0x7632u);
      pairs[2 * half] = even_bytes(packed);
      pairs[2 * half + 1] = odd_bytes(packed);
    }
  } else {
    pair_values<kType>(first, second, pairs);
  }
}

}  // namespace halley::attention
