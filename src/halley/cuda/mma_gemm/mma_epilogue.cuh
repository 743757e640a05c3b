// Sums to outputs: scales, bias, the type of y.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/numbers.cuh"
#include "halley/cuda/mma_gemm/mma_arguments.h"

namespace halley::cuda {

/// Outputs n .. n + 3 of token m, those of them that there are.
__device__ __forceinline__ void store_four(const MmaArguments& args, int m, int n,
                                           const float (&values)[4]) {
  const int64_t begin = m * args.y_stride + n;
  if (args.has_wide_rows && n + 4 <= args.N) {
    if (args.y_dtype == DType::kF32) {
      *reinterpret_cast<float4*>(static_cast<float*>(args.y) + begin) = {values[0], values[1],
                                                                         values[2], values[3]};
      return;
    }
    uint16_t bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bits[i] = args.y_dtype == DType::kF16 ? __half_as_ushort(__float2half_rn(values[i]))
                                            : __bfloat16_as_ushort(__float2bfloat16_rn(values[i]));
    }
    *reinterpret_cast<uint2*>(static_cast<uint16_t*>(args.y) + begin) = {
        bits[0] | uint32_t{bits[1]} << 16, bits[2] | uint32_t{bits[3]} << 16};
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (n + i < args.N) store_number(args.y, args.y_dtype, begin + i, values[i]);
  }
}

/// The same from the sums of all of K.
template <typename Sum>
__device__ __forceinline__ void finish_four(const MmaArguments& args, int m, int n,
                                            const Sum (&sums)[4]) {
  const RowScales& scales = args.scales;
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[i] = args.sum_factor * static_cast<float>(sums[i]);
    if (n + i >= args.N) continue;
    const float bias = args.bias == nullptr ? 0.0f : args.bias[n + i];
    if (scales.w_scales == nullptr) {
      values[i] += bias;
      continue;
    }
    // Written out: the compiler would join products and sums in places that it chooses.
    float scaled = __fmul_rn(scales.w_scales[n + i], values[i]);
    if (scales.w_offsets != nullptr) {
      scaled = fmaf(-scales.w_offsets[n + i], static_cast<float>(scales.x_sums[m]), scaled);
    }
    values[i] = fmaf(scales.x_scales[scales.is_x_tensor ? 0 : m], scaled, bias);
  }
  store_four(args, m, n, values);
}

/// Where the partial sums of outputs n .. n + 3 of token m lie.
template <typename Sum>
__device__ __forceinline__ Sum* partials_of(const MmaArguments& args, int split, int m, int n) {
  const int64_t row = int64_t{split} * args.M + m;
  return static_cast<Sum*>(args.partials) + row * args.num_panels * kChunkOutputs + n;
}

}  // namespace halley::cuda
