// The rounding of activations on the GPU, input by input, for all kernels that leave codes.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <cuda_fp8.h>

#include "halley/core/packed_weight.h"
#include "halley/cuda/gemm/quantize_rows.h"

namespace halley::cuda {

inline constexpr uint32_t kInfinityBits = 0x7F800000u;
inline constexpr float kSmallestMagnitude = 0x1p-100f;  // as kernels/gemm/activation_step.h

/// What a kernel needs to know of the rounding.
struct Rounding {
  ActivationQuant kind;
  float static_scale, static_inverse;  // NaN where the scale cannot be used
  int64_t num_s8_inputs;
  float s4_clip;
  const int32_t* input_perm;
  bool is_e4m3;
};

struct Step {
  float scale, inverse;
};

/// Code limits of integers.
struct Limits {
  float smallest, largest;
};

// Every operation is written as one that the compiler may not fuse, so that all bits are those of
// the definition.

__device__ inline Step step_of_range(float range, float code_max) {
  if (range < kSmallestMagnitude) return {0.0f, 0.0f};
  return {__fdiv_rn(range, code_max), __fdiv_rn(code_max, range)};
}

__device__ inline bool is_s8_block(const Rounding& rounding, int64_t begin) {
  return rounding.kind != ActivationQuant::kS4S8Block128 || begin < rounding.num_s8_inputs;
}

/// The step of the group that begins with input `begin`, from the bits of its largest magnitude.
__device__ inline Step step_of(const Rounding& rounding, int64_t begin, uint32_t largest_bits) {
  const float nan = __int_as_float(0x7FFFFFFF);
  if (largest_bits >= kInfinityBits) return {nan, nan};
  const float largest = __uint_as_float(largest_bits);
  switch (rounding.kind) {
    case ActivationQuant::kS8Token:
      return step_of_range(largest, 127.0f);
    case ActivationQuant::kE4m3Token:
    case ActivationQuant::kE4m3Group128:
      return step_of_range(largest, 448.0f);
    case ActivationQuant::kS4S8Block128:
      if (is_s8_block(rounding, begin)) return step_of_range(largest, 127.0f);
      // Written so that NaN fails.
      if (!(rounding.s4_clip > 0.0f && rounding.s4_clip <= 1.0f)) return {nan, nan};
      return step_of_range(__fmul_rn(rounding.s4_clip, largest), 7.0f);
    default:
      return {rounding.static_scale, rounding.static_inverse};
  }
}

/// Rounds to nearest even. Limits are whole numbers, so that it is the same to limit first; the sum
/// with 1.5 * 2^23 has the rounded number in its lowest bits, without the two conversions, of which
/// an SM makes a quarter as many as sums.
__device__ inline int integer_code(float x, const Step& step, const Limits& limits) {
  if (isnan(step.scale)) return 0;
  constexpr float kInLowestBits = 0x1.8p23f;
  const float code = fminf(fmaxf(__fmul_rn(x, step.inverse), limits.smallest), limits.largest);
  return __float_as_int(__fadd_rn(code, kInLowestBits)) - __float_as_int(kInLowestBits);
}

__device__ inline uint8_t e4m3_code(float x, const Step& step) {
  return __nv_cvt_float_to_fp8(__fmul_rn(x, step.inverse), __NV_SATFINITE, __NV_E4M3);
}

/// The codes of four inputs, the first in the lowest byte. Adds integers to `sum`.
__device__ inline uint32_t codes_of_vec4(bool is_e4m3, float4 x, const Step& step,
                                         const Limits& limits, int& sum) {
  if (is_e4m3) {
    const float inverse = step.inverse;
    const uint32_t low = __nv_cvt_float2_to_fp8x2(
        {__fmul_rn(x.x, inverse), __fmul_rn(x.y, inverse)}, __NV_SATFINITE, __NV_E4M3);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(
        {__fmul_rn(x.z, inverse), __fmul_rn(x.w, inverse)}, __NV_SATFINITE, __NV_E4M3);
    return low | high << 16;
  }
  const int a = integer_code(x.x, step, limits), b = integer_code(x.y, step, limits);
  const int c = integer_code(x.z, step, limits), d = integer_code(x.w, step, limits);
  sum += a + b + c + d;
  const auto low = __byte_perm(static_cast<uint32_t>(a), static_cast<uint32_t>(b), 0x0040u);
  const auto high = __byte_perm(static_cast<uint32_t>(c), static_cast<uint32_t>(d), 0x0040u);
  return __byte_perm(low, high, 0x5410u);
}

/// How the inputs of one group become codes.
struct Coder {
  const Rounding& rounding;
  Step step;
  Limits limits;
};

/// The bits of magnitudes have the order of the numbers; infinity and NaN are the largest.
__device__ inline uint32_t magnitude_bits(float x) { return __float_as_uint(x) & 0x7FFFFFFFu; }

/// The largest over the block, to all threads. `scratch` [32] lies in shared memory and holds
/// nothing that a thread still reads. Every thread of the block, which has whole warps, calls it.
__device__ inline uint32_t largest_of_block(uint32_t value, uint32_t* scratch) {
  const uint32_t of_warp = __reduce_max_sync(0xFFFFFFFFu, value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = of_warp;
  __syncthreads();
  const unsigned warp = threadIdx.x % 32;  // whose value this lane takes
  return __reduce_max_sync(0xFFFFFFFFu, warp < blockDim.x / 32 ? scratch[warp] : 0);
}

/// The same of sums.
__device__ inline int sum_of_block(int value, int* scratch) {
  const int of_warp = __reduce_add_sync(0xFFFFFFFFu, value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = of_warp;
  __syncthreads();
  const unsigned warp = threadIdx.x % 32;
  return __reduce_add_sync(0xFFFFFFFFu, warp < blockDim.x / 32 ? scratch[warp] : 0);
}

inline Rounding rounding_of(const CudaActivationQuant& quant) {
  const bool is_usable = std::isfinite(quant.scale) && quant.scale >= kSmallestMagnitude;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const bool is_block = quant.kind == ActivationQuant::kS4S8Block128;
  return {.kind = quant.kind,
          .static_scale = is_usable ? quant.scale : kNan,
          .static_inverse = is_usable ? 1.0f / quant.scale : kNan,
          .num_s8_inputs = quant.num_s8_inputs,
          .s4_clip = quant.s4_clip,
          .input_perm = is_block ? quant.input_perm : nullptr,
          .is_e4m3 = activation_code_dtype(quant.kind) == DType::kF8E4M3};
}

}  // namespace halley::cuda
