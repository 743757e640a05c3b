// Query rows of decode attention: from device memory to B-operand fragments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/activation_rows.cuh"
#include "halley/cuda/attention/decode_fragments.cuh"
#include "halley/cuda/ptx/packed_math.cuh"

namespace halley::attention {

/// A lane's part of a query row, in the order of raw_key_element(). The row is multiplied by a
/// power of two that brings its greatest element to [1, 2): f16 then holds queries of any
/// magnitude. Elements below 2^-14 of the greatest (2^-10 for the high nibbles of int4) lose
/// precision.
template <KvDType kType, int kHeadDim>
struct QueryRow {
  using Rows = KvRows<kType, kHeadDim>;
  static constexpr int kGroups = kHeadDim / 4 / 8;  // of 8 elements, in a lane
  static constexpr int kGroupsPerUnit = Rows::kKeyUnitElements / 8;

  Words<16> raw[kGroups];
  bool is_bf16;

  /// `row`: the row's first element, or null for a row of zeros.
  __device__ void load(const std::byte* row, int head_dim, bool row_is_bf16) {
    is_bf16 = row_is_bf16;
    const int c = static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int unit = i / kGroupsPerUnit * 4 + c;
      const int element = unit * Rows::kKeyUnitElements + i % kGroupsPerUnit * 8;
      raw[i] = {};
      if (row != nullptr && element < head_dim) raw[i] = Words<16>::load(row + 2 * element);
    }
  }

  /// Element `element` of the lane's units, unscaled.
  __device__ float at(int element) const {
    const uint32_t word = raw[element / 8].words[element % 8 / 2];
    const float2 pair = is_bf16 ? unpack<Operand::kBf16>(word) : unpack<Operand::kF16>(word);
    return element % 2 == 0 ? pair.x : pair.y;
  }

  /// The lane's greatest magnitude.
  __device__ float greatest() const {
    float result = 0;
#pragma unroll
    for (int element = 0; element < kHeadDim / 4; ++element) {
      result = fmaxf(result, fabsf(at(element)));
    }
    return result;
  }

  /// The B operand of k-step `step`. Adds its elements, as rounded, to `sum`.
  __device__ void operand(int step, float multiplier, uint32_t (&words)[2], float& sum) const {
    const int first = step / Rows::kKeyUnitSteps * Rows::kKeyUnitElements;
    const int in_unit = step % Rows::kKeyUnitSteps;
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      const float low = at(first + raw_key_element<kType>(in_unit, word, 0)) * multiplier;
      const float high = at(first + raw_key_element<kType>(in_unit, word, 1)) * multiplier;
      const uint32_t pair = pack<Rows::kOperand>(low, high);
      if constexpr (Rows::kHasZeros) {
        const float2 rounded = unpack<Rows::kOperand>(pair);
        sum += rounded.x + rounded.y;
      }
      // High nibbles stand for 16 times the value.
      const bool is_high_nibble = kType == KvDType::kInt4 && word == 1;
      words[word] = is_high_nibble ? ptx::mul_rn_f16x2(pair, kF16OfSixteenth) : pair;
    }
  }
};

}  // namespace halley::attention
