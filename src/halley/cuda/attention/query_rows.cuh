// Sixteen query rows from device memory to operands of the tensor cores.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/activation_rows.cuh"
#include "halley/cuda/attention/kv_fragments.cuh"

namespace halley::attention {

/// A lane's part of query rows g and g + 8, in the order of key_operand(). Rows are multiplied by a
/// power of two so that their greatest element is in [1, 2): f16 then holds queries of any size,
/// elements below 2^-14 of the greatest less exactly.
template <KvDType kType, int kHeadDim>
struct QueryRows {
  using Rows = KvRows<kType, kHeadDim>;
  static constexpr int kGroups = kHeadDim / 4 / 8;  // of 8 elements, in a lane
  static constexpr int kGroupsPerUnit = Rows::kKeyUnitElements / 8;

  Words<16> raw[2][kGroups] = {};
  float multiplier[2] = {1.0f, 1.0f};
  bool is_bf16 = false;

  /// `row_data[h]` is the row's first element, or null for a row of zeros.
  __device__ void load(const std::byte* const (&row_data)[2], int head_dim, bool rows_are_bf16) {
    is_bf16 = rows_are_bf16;
    const int c = static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const int unit = i / kGroupsPerUnit * 4 + c;
        const int element = unit * Rows::kKeyUnitElements + i % kGroupsPerUnit * 8;
        if (row_data[h] != nullptr && element < head_dim) {
          raw[h][i] = Words<16>::load(row_data[h] + 2 * element);
        }
      }
    }
  }

  /// Element of the lane's units, counted through; not multiplied.
  __device__ float at(int h, int element) const {
    const uint32_t word = raw[h][element / 8].words[element % 8 / 2];
    const float2 pair = is_bf16 ? unpack<Operand::kBf16>(word) : unpack<Operand::kF16>(word);
    return element % 2 == 0 ? pair.x : pair.y;
  }

  /// The lane's greatest magnitude of a row.
  __device__ float greatest(int h) const {
    float result = 0;
#pragma unroll
    for (int element = 0; element < kHeadDim / 4; ++element) {
      result = fmaxf(result, fabsf(at(h, element)));
    }
    return result;
  }

  /// Operand `a` of step `step`; adds its elements, as rounded, to `sums`.
  __device__ void operand(int step, uint32_t (&a)[4], float (&sums)[2]) const {
    const int unit = step / Rows::kKeyUnitSteps, in_unit = step % Rows::kKeyUnitSteps;
#pragma unroll
    for (int word = 0; word < 2; ++word) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int first = unit * Rows::kKeyUnitElements;
        const float low = at(h, first + key_element<kType>(in_unit, word, 0)) * multiplier[h];
        const float high = at(h, first + key_element<kType>(in_unit, word, 1)) * multiplier[h];
        const uint32_t pair = pack<Rows::kOperand>(low, high);
        a[2 * word + h] = pair;
        if constexpr (Rows::kHasZeros) {
          const float2 rounded = unpack<Rows::kOperand>(pair);
          sums[h] += rounded.x + rounded.y;
        }
      }
    }
  }
};

}  // namespace halley::attention
