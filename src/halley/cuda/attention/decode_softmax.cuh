// The online softmax of a decode over tiles of transposed scores, as the tensor cores leave them:
// a lane has the tokens g and g + 8 of each step, and the queries 2c and 2c + 1 of each eight.
//
// Scores stay as they are, and the factor to log2 is in the exponent. What weights are relative to
// (a query's base, the values' unit) rises only when a tile exceeds it by far: weights reach 2^8
// and scales of values 2^4, which leaves f16 room, and the lanes need not agree in each tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/decode_fragments.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/softmax_rows.cuh"

namespace halley::attention {

constexpr float kScaleRoom = 16.0f;  // the greatest scale of values, in units

/// Over the lanes of equal c: all tokens of a tile.
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

/// A lane's part of a tile: its tokens are `first` and each kTokenStep behind it, of which those in
/// [begin, end) are seen. Scales are at addresses of shared memory.
struct LaneTokens {
  uint32_t key_scales, value_scales;
  int first, begin, end;
  bool sees_all;  // all lanes do
};

/// A warp's running softmax. Query 8b + 2c + j of the lane is [b][j].
template <typename Shape>
struct DecodeSoftmax {
  using Rows = typename Shape::Rows;
  static constexpr int kBlocks = Shape::kBlocks8;
  static constexpr int kTokens = 2 * Shape::kNumSteps;  // of a lane in a tile
  using Scores = float[Shape::kNumSteps][kBlocks][4];   // [2h + j]

  float factor[kBlocks][2];     // of scores to log2
  float query_sum[kBlocks][2];  // of the query's elements, for zeros
  float margin[kBlocks][2];     // of scores, that weights have room for

  float base[kBlocks][2];      // score whose weight is 1; -infinity: none yet
  float exponent[kBlocks][2];  // -base * factor
  float limit[kBlocks][2];     // of scores, base + margin
  float sum[kBlocks][2];       // of weights; of this lane's tokens alone
  float zero_sum[kBlocks][2];  // of weight * zero; likewise
  // Weights meet values in f16, where weight * scale might be too small: they are in units of about
  // the greatest scale so far, and so are the sums of values.
  float unit = 0, per_unit = 0;

  struct Scales {
    float of[kTokens], zero[kTokens];  // of a lane's tokens 2n + h

    __device__ void load(uint32_t from) {
#pragma unroll
      for (int i = 0; i < kTokens; i += 2) {
        if constexpr (Shape::kTokenStep == 1) {
          const uint2 bits = load_shared_pair(from + 4 * i);
          set(i, bits.x);
          set(i + 1, bits.y);
        } else {
          set(i, load_shared_word(from + 4 * Shape::kTokenStep * i));
          set(i + 1, load_shared_word(from + 4 * Shape::kTokenStep * (i + 1)));
        }
      }
    }
    __device__ void set(int i, uint32_t bits) {
      const float2 scale = row_scale<Rows>(bits);
      of[i] = scale.x;
      zero[i] = scale.y;
    }
  };

  __device__ void begin(const ScoreRule& rule, const float (&multiplier)[kBlocks][2]) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        factor[b][j] = rule.scale * code_unit<Shape::kDType>() / multiplier[b][j];
        margin[b][j] = kWeightRoom / (rule.soft_cap > 0 ? 1.0f : factor[b][j]);
        base[b][j] = limit[b][j] = -infinity();
        exponent[b][j] = sum[b][j] = zero_sum[b][j] = 0;
      }
    }
    unit = 0;
    per_unit = 0;
  }

  /// From sums of products to weights in units, in place. Where something rises, `rescale` gets
  /// what sums of values are to be multiplied by, and the result is true in all lanes.
  __device__ bool step(Scores& scores, const LaneTokens& tokens, const ScoreRule& rule,
                       float (&rescale)[kBlocks][2]) {
    if constexpr (Rows::kHasScales) {
      Scales keys;
      keys.load(tokens.key_scales);
      scale(scores, keys);
    }
    if (rule.soft_cap > 0) cap(scores, rule.soft_cap);
    Scales values;
    if constexpr (Rows::kHasScales) values.load(tokens.value_scales);
    if (!tokens.sees_all) hide(scores, values, tokens);
    float greatest[kBlocks][2];
    bool exceeds = false;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
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
      exceeds = exceeds || greatest_scale > kScaleRoom * unit;
    }
    const bool rises = __any_sync(0xFFFFFFFFu, exceeds);
    if (rises) raise(greatest, greatest_scale, rule, rescale);
    to_weights(scores, values, rule);
    return rises;
  }

  /// Sums over all tokens, at the end.
  __device__ void finish() {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
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
      for (int b = 0; b < kBlocks; ++b) {
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
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[i / 2][b][i % 2 * 2 + j];
          score = capped(__fmul_rn(score, factor[b][j]), soft_cap);
        }
      }
    }
  }

  static __device__ void hide(Scores& scores, Scales& values, const LaneTokens& tokens) {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int token = tokens.first + Shape::kTokenStep * i;
      if (token >= tokens.begin && token < tokens.end) continue;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int j = 0; j < 2; ++j) scores[i / 2][b][i % 2 * 2 + j] = -infinity();
      }
      values.of[i] = values.zero[i] = 0;
    }
  }

  /// Bases of the queries that exceed their limit, and the unit if it is exceeded: a query's bits
  /// do not depend on others.
  __device__ void raise(const float (&of_lane)[kBlocks][2], float lane_scale, const ScoreRule& rule,
                        float (&rescale)[kBlocks][2]) {
    float unit_change = 1;
    if constexpr (Rows::kHasScales) {
      // Numbers that are not negative are in the order of their bits.
      const float greatest =
          __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(lane_scale)));
      if (greatest > kScaleRoom * unit) {
        per_unit = 1.0f / greatest;
        unit_change = __fmul_rn(unit, per_unit);
        unit = greatest;
      }
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float greatest = max_over_tokens(of_lane[b][j]);
        float change = 1;
        if (greatest > limit[b][j]) {
          const float to_log2 = rule.soft_cap > 0 ? 1.0f : factor[b][j];
          change = exp2_approx(__fmul_rn(__fsub_rn(base[b][j], greatest), to_log2));
          base[b][j] = greatest;
          exponent[b][j] = -__fmul_rn(greatest, to_log2);
          limit[b][j] = __fadd_rn(greatest, margin[b][j]);
          sum[b][j] = __fmul_rn(sum[b][j], change);
          zero_sum[b][j] = __fmul_rn(zero_sum[b][j], change);
        }
        rescale[b][j] = __fmul_rn(change, unit_change);
      }
    }
  }

  __device__ void to_weights(Scores& scores, const Scales& values, const ScoreRule& rule) {
    const bool is_capped = rule.soft_cap > 0;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      float in_units = 1;
      if constexpr (Rows::kHasScales) in_units = __fmul_rn(values.of[i], per_unit);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& weight = scores[i / 2][b][i % 2 * 2 + j];
          weight = exp2_approx(fmaf(weight, is_capped ? 1.0f : factor[b][j], exponent[b][j]));
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
