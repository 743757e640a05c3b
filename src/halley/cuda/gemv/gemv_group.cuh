// Scales and zeros of a weight's groups.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>

#include "halley/cuda/gemv/gemv_arguments.h"

namespace halley::cuda {

/// A scale or zero of 16 bits, of the half of a word.
__device__ __forceinline__ float f16_half(uint32_t word, int half) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> (16 * half))));
}
__device__ __forceinline__ float bf16_half(uint32_t word, int half) {
  return __uint_as_float(half == 0 ? word << 16 : word & 0xFFFF0000u);
}

/// Scales of a lane's two outputs, and their zeros, 16 bits each; the latter where there are any.
struct GemvGroup {
  uint32_t scales, zeros;
};

/// Group `group` of an entry of a tile.
__device__ __forceinline__ GemvGroup load_group(const GemvWeightArguments& weight, int64_t tile,
                                                int entry, int group, int lane) {
  const int64_t at =
      ((tile * weight.num_entries + entry) * 8 + lane / 4) * weight.groups_of_entry + group;
  GemvGroup result = {0, 0};
  if (weight.scale_dtype != DType::kF32) {
    result.scales = __ldg(static_cast<const uint32_t*>(weight.scales) + at);
  }
  if (weight.zeros != nullptr) {
    result.zeros = __ldg(static_cast<const uint32_t*>(weight.zeros) + at);
  }
  return result;
}

/// 1 of scales that stand with the outputs.
__device__ __forceinline__ float group_scale(const GemvWeightArguments& weight,
                                             const GemvGroup& group, int row) {
  if (weight.scale_dtype == DType::kF32) return 1;
  return weight.scale_dtype == DType::kF16 ? f16_half(group.scales, row)
                                           : bf16_half(group.scales, row);
}
__device__ __forceinline__ float group_zero(const GemvWeightArguments& weight,
                                            const GemvGroup& group, int row) {
  return weight.zeros == nullptr ? weight.zero : f16_half(group.zeros, row);
}

}  // namespace halley::cuda
