// Online softmax of decode attention over tiles of S^T accumulators: a lane has tokens g and g + 8
// of each k-step, and queries 2c and 2c + 1 of each n8 tile.
//
// Scores stay unscaled; the factor to log2 is applied in the exponent. The rescale is lazy: a
// query's reference maximum, and the unit of value scales, rise only when a tile exceeds them by
// far. Softmax weights may reach 2^8 and value scales 2^4, which f16 can hold, and the lanes need
// not agree on a maximum in each tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/decode_fragments.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/softmax_rows.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/packed_math.cuh"

namespace halley::attention {

constexpr float kScaleHeadroom = 16.0f;  // greatest scale of values, in units

/// Reduces over the lanes of equal c: all tokens of a tile.
__device__ inline float max_over_tokens(float x) {
#pragma unroll
  for (int mask = 4; mask <= 16; mask *= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, mask));
  }
  return x;
}
__device__ inline float sum_over_tokens(float x) {
#pragma unroll
  for (int mask = 4; mask <= 16; mask *= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, mask);
  return x;
}

/// A lane's tokens in a tile: `first` and every kTokenStep after it. Tokens outside [begin, end)
/// are masked. Scales are shared-memory addresses.
struct LaneTokens {
  uint32_t key_scales, value_scales;
  int first, begin, end;
  bool sees_all;  // no token of any lane is masked
};

/// A warp's running softmax. Query 8b + 2c + j of the lane is [b][j].
template <typename Shape>
struct DecodeSoftmax {
  using Rows = typename Shape::Rows;
  static constexpr int kN8Tiles = Shape::kN8Tiles;
  static constexpr int kTokens = 2 * Shape::kNumSteps;  // of a lane in a tile
  using Scores = float[Shape::kNumSteps][kN8Tiles][4];  // [2h + j]

  float factor[kN8Tiles][2];     // from scores to log2
  float query_sum[kN8Tiles][2];  // sum of the query's elements, for zero points
  float margin[kN8Tiles][2];     // headroom in scores: ref_max may be exceeded by it

  float ref_max[kN8Tiles][2];   // reference maximum: score whose weight is 1; -infinity: none yet
  float exponent[kN8Tiles][2];  // -ref_max * factor
  float limit[kN8Tiles][2];     // ref_max + margin
  float sum[kN8Tiles][2];       // sum of weights over this lane's tokens
  float zero_sum[kN8Tiles][2];  // sum of weight * zero over this lane's tokens
  // P is an f16 operand, in which weight * value scale might underflow: P and acc_o are in units of
  // about the greatest value scale so far.
  float unit = 0, per_unit = 0;

  struct Scales {
    float of[kTokens], zero[kTokens];  // of a lane's tokens 2n + h

    __device__ void load(uint32_t from) {
#pragma unroll
      for (int i = 0; i < kTokens; i += 2) {
        if constexpr (Shape::kTokenStep == 1) {
          const uint2 bits = ptx::ld_shared_b32x2(from + 4 * i);
          set(i, bits.x);
          set(i + 1, bits.y);
        } else {
          set(i, ptx::ld_shared_b32(from + 4 * Shape::kTokenStep * i));
          set(i + 1, ptx::ld_shared_b32(from + 4 * Shape::kTokenStep * (i + 1)));
        }
      }
    }
    __device__ void set(int i, uint32_t bits) {
      const float2 scale = row_scale<Rows>(bits);
      of[i] = scale.x;
      zero[i] = scale.y;
    }
  };

  __device__ void begin(const ScoreRule& rule, const float (&multiplier)[kN8Tiles][2]) {
#pragma unroll
    for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        factor[b][j] = rule.scale * denormal_scale<Shape::kDType>() / multiplier[b][j];
        margin[b][j] = kWeightHeadroom / (rule.soft_cap > 0 ? 1.0f : factor[b][j]);
        ref_max[b][j] = limit[b][j] = -infinity();
        exponent[b][j] = sum[b][j] = zero_sum[b][j] = 0;
      }
    }
    unit = 0;
    per_unit = 0;
  }

  /// Turns the S accumulators into softmax weights in units, in place. Returns, in all lanes,
  /// whether a reference rose; `rescale` then holds the factors of acc_o.
  __device__ bool step(Scores& scores, const LaneTokens& tokens, const ScoreRule& rule,
                       float (&rescale)[kN8Tiles][2]) {
    if constexpr (Rows::kHasScales) {
      Scales keys;
      keys.load(tokens.key_scales);
      scale(scores, keys);
    }
    if (rule.soft_cap > 0) cap(scores, rule.soft_cap);
    Scales values;
    if constexpr (Rows::kHasScales) values.load(tokens.value_scales);
    if (!tokens.sees_all) mask(scores, values, tokens);
    float greatest[kN8Tiles][2];
    bool exceeds = false;
#pragma unroll
    for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        greatest[b][j] = -infinity();
#pragma unroll
        for (int i = 0; i < kTokens; ++i) {
          greatest[b][j] = fmaxf(greatest[b][j], scores[i / 2][b][i % 2 * 2 + j]);
        }
        exceeds = exceeds || greatest[b][j] > limit[b][j];
      }
    }
    float greatest_scale = 0;
    if constexpr (Rows::kHasScales) {
#pragma unroll
      for (int i = 0; i < kTokens; ++i) greatest_scale = fmaxf(greatest_scale, values.of[i]);
      exceeds = exceeds || greatest_scale > kScaleHeadroom * unit;
    }
    const bool rescales = __any_sync(0xFFFFFFFFu, exceeds);
    if (rescales) raise_maxima(greatest, greatest_scale, rule, rescale);
    exponentiate(scores, values, rule);
    return rescales;
  }

  /// Reduces the sums over all tokens; once, at the end.
  __device__ void finish() {
#pragma unroll
    for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        sum[b][j] = sum_over_tokens(sum[b][j]);
        if constexpr (Rows::kHasZeros) zero_sum[b][j] = sum_over_tokens(zero_sum[b][j]);
      }
    }
  }

 private:
  __device__ void scale(Scores& scores, const Scales& keys) const {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
#pragma unroll
      for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[i / 2][b][i % 2 * 2 + j];
          score = __fmul_rn(score, keys.of[i]);
          if constexpr (Rows::kHasZeros) score = fmaf(keys.zero[i], query_sum[b][j], score);
        }
      }
    }
  }

  __device__ void cap(Scores& scores, float soft_cap) const {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
#pragma unroll
      for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[i / 2][b][i % 2 * 2 + j];
          score = capped(__fmul_rn(score, factor[b][j]), soft_cap);
        }
      }
    }
  }

  static __device__ void mask(Scores& scores, Scales& values, const LaneTokens& tokens) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int token = tokens.first + Shape::kTokenStep * i;
      if (token >= tokens.begin && token < tokens.end) continue;
#pragma unroll
      for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
        for (int j = 0; j < 2; ++j) scores[i / 2][b][i % 2 * 2 + j] = -infinity();
      }
      values.of[i] = values.zero[i] = 0;
    }
  }

  /// Raises the reference maximum of the queries that exceed their limit, and the unit if it is
  /// exceeded. A query's bits do not depend on other queries.
  __device__ void raise_maxima(const float (&of_lane)[kN8Tiles][2], float lane_scale,
                               const ScoreRule& rule, float (&rescale)[kN8Tiles][2]) {
    float unit_change = 1;
    if constexpr (Rows::kHasScales) {
      // Non-negative floats compare as their bits do.
      const float greatest =
          __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(lane_scale)));
      if (greatest > kScaleHeadroom * unit) {
        per_unit = 1.0f / greatest;
        unit_change = __fmul_rn(unit, per_unit);
        unit = greatest;
      }
    }
#pragma unroll
    for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float greatest = max_over_tokens(of_lane[b][j]);
        float change = 1;
        if (greatest > limit[b][j]) {
          const float to_log2 = rule.soft_cap > 0 ? 1.0f : factor[b][j];
          change = ptx::ex2_approx_ftz_f32(__fmul_rn(__fsub_rn(ref_max[b][j], greatest), to_log2));
          ref_max[b][j] = greatest;
          exponent[b][j] = -__fmul_rn(greatest, to_log2);
          limit[b][j] = __fadd_rn(greatest, margin[b][j]);
          sum[b][j] = __fmul_rn(sum[b][j], change);
          zero_sum[b][j] = __fmul_rn(zero_sum[b][j], change);
        }
        rescale[b][j] = __fmul_rn(change, unit_change);
      }
    }
  }

  __device__ void exponentiate(Scores& scores, const Scales& values, const ScoreRule& rule) {
    const bool is_capped = rule.soft_cap > 0;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      float in_units = 1;
      if constexpr (Rows::kHasScales) in_units = __fmul_rn(values.of[i], per_unit);
#pragma unroll
      for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& weight = scores[i / 2][b][i % 2 * 2 + j];
          weight = ptx::ex2_approx_ftz_f32(
              fmaf(weight, is_capped ? 1.0f : factor[b][j], exponent[b][j]));
          sum[b][j] = __fadd_rn(sum[b][j], weight);
          if constexpr (Rows::kHasZeros) {
            zero_sum[b][j] = fmaf(weight, values.zero[i], zero_sum[b][j]);
          }
          if constexpr (Rows::kHasScales) weight = __fmul_rn(weight, in_units);
        }
      }
    }
  }
};

}  // namespace halley::attention
