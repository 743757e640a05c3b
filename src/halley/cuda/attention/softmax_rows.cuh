// The online softmax over tiles of scores, as the tensor cores leave them in registers.
//
// Every rounding is written out (__fmul_rn, __fadd_rn, fmaf): left to itself the compiler joins a
// product and a sum in one place of a lane's rows and not in another, and a row's bits would depend
// on where in a tile it stands.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/attention/kv_fragments.cuh"

namespace halley::attention {

__device__ inline float infinity() { return __uint_as_float(0x7F800000u); }

/// Greatest of the four lanes that share rows; and their sum.
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
  const float e = exp2_approx(fminf(__fmul_rn(unit, 2.0f * kLog2E), 60.0f));
  const float part = __fsub_rn(1.0f, __fdividef(2.0f, __fadd_rn(e, 1.0f)));
  return score == score ? copysignf(__fmul_rn(__fmul_rn(cap, kLog2E), part), score) : score;
}

/// The scale and zero of a row from its 4 bytes in the page.
template <typename Rows>
__device__ inline float2 row_scale(uint32_t bits) {
  if constexpr (Rows::kHasZeros) {
    return {f16_bits_to_f32(bits & 0xFFFFu), f16_bits_to_f32(bits >> 16)};
  } else {
    return {__uint_as_float(bits), 0.0f};
  }
}

/// Two query rows of a lane, g and g + 8 of a tile: what is fixed, and the running softmax.
template <typename Rows>
struct SoftmaxRows {
  float factor[2] = {0, 0};     // of sums of products: the rule's scale, and the query's unit
  float query_sum[2] = {0, 0};  // of the query's elements, for zeros
  int first[2] = {0, 0}, last[2] = {-1, -1};  // positions that are seen

  float largest[2] = {-infinity(), -infinity()};  // score so far, in log2
  float sum[2] = {0, 0};                          // of weights; this lane's columns alone
  float zero_sum[2] = {0, 0};                     // of weight * zero; likewise
  // Weights meet values in f16, where weight * scale might be too small: they are in units of the
  // greatest scale that the row has seen, and so are its sums of values.
  float unit[2] = {Rows::kHasScales ? 0.0f : 1.0f, Rows::kHasScales ? 0.0f : 1.0f};

  /// From sums of products to weights (in units), in place; `rescale` is for the sums of values so
  /// far. Column j of the tile is position `position` + j. `scales`: of the keys [kTiles * 8], then
  /// of the values, an address of shared memory. `sees_all`: both rows see all of the tile. Returns
  /// whether a rescale differs from 1 in this lane.
  template <int kTiles>
  __device__ bool step(float (&scores)[kTiles][4], int position, bool sees_all,
                       const ScoreRule& rule, uint32_t scales, float (&rescale)[2]) {
    const int column = 2 * static_cast<int>(threadIdx.x % 4);
    to_scores(scores, rule, scales + 4 * column);
    if (!sees_all) hide(scores, position + column);
    float base[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float greatest = largest[h];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        greatest = fmaxf(greatest, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
      }
      greatest = quad_max(greatest);
      base[h] = greatest == -infinity() ? 0.0f : greatest;  // nothing seen yet: weights are 0
      rescale[h] = exp2_approx(__fsub_rn(largest[h], base[h]));
      largest[h] = greatest;
      sum[h] = __fmul_rn(sum[h], rescale[h]);
      zero_sum[h] = __fmul_rn(zero_sum[h], rescale[h]);
    }
    float per_unit[2] = {1.0f, 1.0f};
    if constexpr (Rows::kHasScales) {
      const uint32_t value_scales = scales + 4 * 8 * kTiles;
      float greatest[2];
      greatest_scales<kTiles>(value_scales, position + column, sees_all, greatest);
      raise_units(greatest, rescale, per_unit);
    }
    to_weights(scores, base, per_unit, scales + 4 * (8 * kTiles + column));
    return rescale[0] != 1.0f || rescale[1] != 1.0f;
  }

  /// Sums over all columns, at the end.
  __device__ void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] = quad_sum(sum[h]);
      if constexpr (Rows::kHasZeros) zero_sum[h] = quad_sum(zero_sum[h]);
    }
  }

 private:
  template <int kTiles>
  __device__ void to_scores(float (&scores)[kTiles][4], const ScoreRule& rule,
                            uint32_t scales) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      uint2 bits{};
      if constexpr (Rows::kHasScales) bits = load_shared_pair(scales + 32 * n);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float2 scale{};
        if constexpr (Rows::kHasScales) scale = row_scale<Rows>(j == 0 ? bits.x : bits.y);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& score = scores[n][2 * h + j];
          if constexpr (Rows::kHasScales) score = __fmul_rn(score, scale.x);
          if constexpr (Rows::kHasZeros) score = fmaf(scale.y, query_sum[h], score);
          score = __fmul_rn(score, factor[h]);
        }
      }
    }
    if (rule.soft_cap > 0) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (float& score : scores[n]) score = capped(score, rule.soft_cap);
      }
    }
  }

  template <int kTiles>
  __device__ void hide(float (&scores)[kTiles][4], int position) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = position + 8 * n + i % 2;
        if (at < first[i / 2] || at > last[i / 2]) scores[n][i] = -infinity();
      }
    }
  }

  /// The greatest scale of values that each row sees in the tile, NaN left out. No other may count:
  /// a row's bits would depend on what is computed beside it.
  template <int kTiles>
  __device__ void greatest_scales(uint32_t scales, int position, bool sees_all,
                                  float (&greatest)[2]) const {
    greatest[0] = greatest[1] = 0;
    if (sees_all) {
      const auto lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
      for (int token = 0; token < 8 * kTiles; token += 32) {
        const int at = token + lane % (8 * kTiles);
        greatest[0] = fmaxf(greatest[0], row_scale<Rows>(load_shared_word(scales + 4 * at)).x);
      }
      // Numbers that are not negative are in the order of their bits.
      greatest[0] = __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(greatest[0])));
      greatest[1] = greatest[0];
      return;
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = 8 * n + j;
        const uint32_t from = scales + 4 * (2 * (threadIdx.x % 4) + at);
        const float scale = row_scale<Rows>(load_shared_word(from)).x;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const bool is_seen = position + at >= first[h] && position + at <= last[h];
          greatest[h] = fmaxf(greatest[h], is_seen ? scale : 0.0f);
        }
      }
    }
    greatest[0] = quad_max(greatest[0]);
    greatest[1] = quad_max(greatest[1]);
  }

  /// The units for this tile; rescale is then of sums in the old units.
  __device__ void raise_units(const float (&greatest)[2], float (&rescale)[2],
                              float (&per_unit)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float raised = fmaxf(unit[h], greatest[h]);
      per_unit[h] = raised > 0 ? 1.0f / raised : 0.0f;
      if (raised != unit[h]) {
        rescale[h] = __fmul_rn(rescale[h], __fmul_rn(unit[h], per_unit[h]));
      }
      unit[h] = raised;
    }
  }

  template <int kTiles>
  __device__ void to_weights(float (&scores)[kTiles][4], const float (&base)[2],
                             const float (&per_unit)[2], uint32_t scales) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      uint2 bits{};
      if constexpr (Rows::kHasScales) bits = load_shared_pair(scales + 32 * n);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float2 scale{};
        if constexpr (Rows::kHasScales) scale = row_scale<Rows>(j == 0 ? bits.x : bits.y);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float& weight = scores[n][2 * h + j];
          weight = exp2_approx(__fsub_rn(weight, base[h]));
          sum[h] = __fadd_rn(sum[h], weight);
          if constexpr (Rows::kHasScales) {
            // A row that is not seen must not matter, whatever its scale is.
            const bool is_seen = !(weight <= 0);
            if constexpr (Rows::kHasZeros) {
              zero_sum[h] = fmaf(weight, is_seen ? scale.y : 0.0f, zero_sum[h]);
            }
            const float in_units = __fmul_rn(weight, __fmul_rn(scale.x, per_unit[h]));
            weight = is_seen ? in_units : 0.0f;
          }
        }
      }
    }
  }
};

/// The weights of 16 columns, tiles 2 * step and 2 * step + 1, as an operand.
template <Operand kOperand, int kTiles>
__device__ inline void weight_operand(const float (&weights)[kTiles][4], int step,
                                      uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float(&tile)[4] = weights[2 * step + i];
    a[2 * i] = pack<kOperand>(tile[0], tile[1]);
    a[2 * i + 1] = pack<kOperand>(tile[2], tile[3]);
  }
}

}  // namespace halley::attention
