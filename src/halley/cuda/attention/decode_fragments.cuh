// Codes of the KV cache as f16 operands of decode attention, with nothing to subtract.
//
// A code q of 4 or 8 bits in the lowest bits of an f16 is the number q * 2^-24: f16 below 2^-14
// counts in steps of 2^-24, and the tensor cores multiply such numbers exactly. So an unsigned code
// becomes an operand by a mask. A nibble in bits 4 to 7 is 16 q * 2^-24: queries of such elements
// are divided by 16, and outputs in the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/decode_instructions.cuh"
#include "halley/cuda/attention/kv_fragments.cuh"

namespace halley::attention {

/// What sums of products of codes are multiplied by.
template <KvDType kType>
constexpr float code_unit() {
  return kType == KvDType::kInt8 || kType == KvDType::kInt4 ? 16777216.0f : 1.0f;
}
/// The same for odd columns of values, in which int4 has its high nibbles.
template <KvDType kType>
constexpr float odd_code_unit() {
  return kType == KvDType::kInt4 ? 1048576.0f : code_unit<kType>();
}

/// Bytes 0 and 2 of `codes` as numbers of 16 bits; and bytes 1 and 3.
__device__ inline uint32_t even_bytes(uint32_t codes) { return codes & 0x00FF00FFu; }
__device__ inline uint32_t odd_bytes(uint32_t codes) { return permute_bytes(codes, 0u, 0x4341u); }

/// The two operand words of step `step` of a key unit, in the order of raw_key_element().
template <KvDType kType, typename Unit>
__device__ inline void raw_key_operand(const Unit& unit, int step, uint32_t (&words)[2]) {
  if constexpr (kType == KvDType::kInt4) {
    const uint32_t codes =
        step % 2 == 0 ? unit.words[step / 2] : permute_bytes(unit.words[step / 2], 0u, 0x4341u);
    words[0] = codes & 0x000F000Fu;
    words[1] = codes & 0x00F000F0u;
  } else if constexpr (kType == KvDType::kInt8) {
    words[0] = even_bytes(unit.words[step]);
    words[1] = odd_bytes(unit.words[step]);
  } else {
    key_operand<kType>(unit, step, words);
  }
}

/// Element of a lane's key unit in half `half` of word `word` of step `step`.
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
      const uint32_t codes = permute_bytes(first, second, half == 0 ? 0x5410u : 0x7632u);
      const uint32_t upper = permute_bytes(codes, 0u, 0x4341u);
      pairs[4 * half] = codes & 0x000F000Fu;
      pairs[4 * half + 1] = codes & 0x00F000F0u;
      pairs[4 * half + 2] = upper & 0x000F000Fu;
      pairs[4 * half + 3] = upper & 0x00F000F0u;
    }
  } else if constexpr (kType == KvDType::kInt8) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t codes = permute_bytes(first, second, half == 0 ? 0x5410u : 0x7632u);
      pairs[2 * half] = even_bytes(codes);
      pairs[2 * half + 1] = odd_bytes(codes);
    }
  } else {
    pair_values<kType>(first, second, pairs);
  }
}

}  // namespace halley::attention
