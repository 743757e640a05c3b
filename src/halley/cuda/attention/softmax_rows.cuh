// Online softmax parts that decode and prefill share: reductions over lanes, the soft cap, row
// scales.
//
// Every rounding is explicit (__fmul_rn, __fadd_rn, fmaf): the compiler would otherwise contract a
// multiply and an add for some of a lane's rows and not for others, and a row's bits would depend
// on its position in a tile.
#pragma once

#include <cstdint>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/attention/kv_fragments.cuh"
#include "halley/cuda/ptx/packed_math.cuh"

namespace halley::attention {

__device__ inline float infinity() { return __uint_as_float(0x7F800000u); }

/// log2 of the greatest softmax weight. The reference maximum rises only when a tile exceeds it by
/// more (lazy rescale); f16 holds weights up to 2^8.
constexpr float kWeightHeadroom = 8.0f;

/// Maximum over the quad of lanes that share rows; quad_sum(): the sum.
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

/// cap * tanh(score / cap) * log2(e), for `cap` > 0.
__device__ inline float capped(float score, float cap) {
  constexpr float kLog2E = 1.44269504f;
  const float unit = __fdividef(fabsf(score), cap);
  const float e = ptx::ex2_approx_ftz_f32(fminf(__fmul_rn(unit, 2.0f * kLog2E), 60.0f));
  const float part = __fsub_rn(1.0f, __fdividef(2.0f, __fadd_rn(e, 1.0f)));
  return score == score ? copysignf(__fmul_rn(__fmul_rn(cap, kLog2E), part), score) : score;
}

/// The scale and zero of a row from its 4 bytes in the page.
template <typename Rows>
__device__ inline float2 row_scale(uint32_t bits) {
  if constexpr (Rows::kHasZeros) {
    return {ptx::cvt_f32_f16(bits & 0xFFFFu), ptx::cvt_f32_f16(bits >> 16)};
  } else {
    return {__uint_as_float(bits), 0.0f};
  }
}

}  // namespace halley::attention
