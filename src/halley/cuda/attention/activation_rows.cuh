// Queries and outputs in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/attention/operand.cuh"

namespace halley::attention {

/// 2^-e such that `greatest` * 2^-e is in [1, 2); 1 if it is 0, infinite or NaN.
__device__ inline float inverse_power(float greatest) {
  const int exponent = static_cast<int>(__float_as_uint(greatest) >> 23 & 0xFFu) - 127;
  if (exponent < -100 || exponent > 100) return 1.0f;
  return __uint_as_float(static_cast<uint32_t>(127 - exponent) << 23);
}

/// Stores two adjacent outputs of a row.
__device__ inline void store_pair(const Activations& to, int64_t element, float low, float high) {
  const uint32_t pair =
      to.out_is_bf16 ? pack<Operand::kBf16>(low, high) : pack<Operand::kF16>(low, high);
  *reinterpret_cast<uint32_t*>(to.out + 2 * element) = pair;
}

}  // namespace halley::attention
