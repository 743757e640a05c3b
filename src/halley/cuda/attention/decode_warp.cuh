// One warp's MMAs over its tiles of keys and values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/decode_fragments.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/decode_softmax.cuh"
#include "halley/cuda/attention/query_rows.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/mma.cuh"

namespace halley::attention {

/// A warp's query fragments, acc_o and softmax for one work item.
template <typename TheShape>
struct DecodeWarp {
  using Shape = TheShape;
  using Rows = typename Shape::Rows;
  using Softmax = DecodeSoftmax<Shape>;
  static constexpr KvDType kType = Shape::kDType;
  static constexpr int kN8Tiles = Shape::kN8Tiles;
  static constexpr int kNumSteps = Shape::kNumSteps;

  uint32_t query[kN8Tiles][Rows::kSteps][2];
  Softmax softmax;
  // O^T accumulators: rows g and g + 8 of m16 tile m are columns n = 2m and 2m + 1 of values; [2 (n
  // % 2) + j] belongs to element value_dim(n) and query 2c + j.
  float acc_o[Rows::kColumns / 2][kN8Tiles][4];

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int g() { return lane() / 4; }
  static __device__ int c() { return lane() % 4; }

  /// The lane's part of a work item's queries, in flight.
  struct Queries {
    QueryRow<kType, Shape::kPaddedHeadDim> of[kN8Tiles];

    __device__ void load(const DecodeParams& params, const DecodeWork& work) {
#pragma unroll
      for (int b = 0; b < kN8Tiles; ++b) {
        const int row = g() + 8 * b;
        const int64_t element = work.item.row * params.activations.q_stride +
                                static_cast<int64_t>(work.first_head + row) * params.rows.head_dim;
        of[b].load(row < work.num_rows ? params.activations.q + 2 * element : nullptr,
                   params.rows.head_dim, params.activations.q_is_bf16);
      }
    }
  };

  __device__ void begin(const Queries& queries, const ScoreRule& rule) {
    float multiplier[kN8Tiles][2];
#pragma unroll
    for (int b = 0; b < kN8Tiles; ++b) {
      const auto& own = queries.of[b];
      const float own_multiplier = inverse_power(quad_max(own.greatest()));
      float own_sum = 0;
#pragma unroll
      for (int step = 0; step < Rows::kSteps; ++step) {
        own.operand(step, own_multiplier, query[b][step], own_sum);
      }
      if constexpr (Rows::kHasZeros) own_sum = quad_sum(own_sum) / denormal_scale<kType>();
        // Moves the factors from the lanes of a row to those of its column.
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int from = 4 * (2 * c() + j);
        multiplier[b][j] = __shfl_sync(0xFFFFFFFFu, own_multiplier, from);
        softmax.query_sum[b][j] = __shfl_sync(0xFFFFFFFFu, own_sum, from);
      }
    }
    softmax.begin(rule, multiplier);
#pragma unroll
    for (int m = 0; m < Rows::kColumns / 2; ++m) {
#pragma unroll
      for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
        for (float& value : acc_o[m][b]) value = 0;
      }
    }
  }

  /// Processes the tile at `stage`, whose first token is at `position`; tokens outside [begin, end)
  /// are masked. `is_copied_whole`: the stage holds arbitrary data for masked tokens too.
  __device__ void add_tile(uint32_t stage, int position, int begin, int end, bool is_copied_whole,
                           const ScoreRule& rule) {
    const bool sees_all = position >= begin && position + Shape::kTokens <= end;
    if (!Rows::kHasZeros && !sees_all && is_copied_whole) {
      clear_values(stage + Shape::kValues, begin - position, end - position);
    }
    typename Softmax::Scores scores;
    compute_qk(stage, scores);
    ValueUnits units[kNumSteps];
    if constexpr (kHoldsValues) {
#pragma unroll
      for (int n = 0; n < kNumSteps; ++n) load_values(stage + Shape::kValues, n, units[n]);
    }
    const int first = Shape::first_token(g());
    const LaneTokens tokens{stage + Shape::kKeyScales + 4 * first,
                            stage + Shape::kValueScales + 4 * first,
                            position + first,
                            begin,
                            end,
                            sees_all};
    float rescale[kN8Tiles][2];
    const bool rescales = softmax.step(scores, tokens, rule, rescale);
    if (rescales) {
#pragma unroll
      for (int m = 0; m < Rows::kColumns / 2; ++m) {
#pragma unroll
        for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
          for (int i = 0; i < 4; ++i) acc_o[m][b][i] *= rescale[b][i % 2];
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kNumSteps; ++n) {
      if constexpr (!kHoldsValues) load_values(stage + Shape::kValues, n, units[n]);
      accumulate_pv(units[n], scores[n]);
    }
  }

  /// Element of the head that column n has in this lane.
  static __device__ int value_dim(int n) {
    const int unit = n / Rows::kValueUnitElements * 8 + g();
    return unit * Rows::kValueUnitElements + n % Rows::kValueUnitElements;
  }

 private:
  // Loads V fragments before the softmax, which hides their latency.
  static constexpr bool kHoldsValues =
      Shape::kTokens * Rows::kRowBytes <= 4096 && kNumSteps * kN8Tiles <= 4;
  struct ValueUnits {  // of tokens e + 2h
    Words<Rows::kValueUnitBytes> of[Rows::kValueUnits][4];
  };

  // Zero-fills masked values: a bulk copy brings stale page contents, or leaves those of the stage,
  // and NaN times a weight of 0 is NaN.
  static __device__ void clear_values(uint32_t rows, int begin, int end) {
    for (int token = 0; token < Shape::kTokens; ++token) {
      if (token >= begin && token < end) continue;
      for (int byte = 16 * lane(); byte < Rows::kRowBytes; byte += 16 * 32) {
        ptx::st_shared_b32x4(rows + token * Rows::kRowBytes + byte, make_uint4(0, 0, 0, 0));
      }
    }
    ptx::fence_proxy_async_shared();
    __syncwarp();
  }

  // Tiles with few k-steps use two accumulators, which halves the chain of dependent MMAs.
  __device__ void compute_qk(uint32_t stage, typename Softmax::Scores& scores) const {
    constexpr int kNumAcc = kNumSteps * kN8Tiles <= 2 ? 2 : 1;
    const uint32_t own_rows = stage + Shape::first_token(g()) * Rows::kRowBytes;
    const uint32_t swizzle = 16 * Shape::swizzle_of_row(g());
    constexpr int kStepBytes = Shape::kTokenStep * Rows::kRowBytes;
    float acc[kNumAcc][kNumSteps][kN8Tiles][4] = {};
#pragma unroll
    for (int i = 0; i < Rows::kKeyUnits; ++i) {
#pragma unroll
      for (int n = 0; n < kNumSteps; ++n) {
        const uint32_t from =
            own_rows + 2 * n * kStepBytes + (((4 * i + c()) * Rows::kKeyUnitBytes) ^ swizzle);
        const auto low = Words<Rows::kKeyUnitBytes>::load_shared(from);
        const auto high = Words<Rows::kKeyUnitBytes>::load_shared(from + kStepBytes);
#pragma unroll
        for (int step = 0; step < Rows::kKeyUnitSteps; ++step) {
          uint32_t of_low[2], of_high[2];
          raw_key_operand<kType>(low, step, of_low);
          raw_key_operand<kType>(high, step, of_high);
          const uint32_t a[4] = {of_low[0], of_high[0], of_low[1], of_high[1]};
#pragma unroll
          for (int b = 0; b < kN8Tiles; ++b) {
            const uint32_t(&q)[2] = query[b][i * Rows::kKeyUnitSteps + step];
            ptx::mma_sync<MmaOf<Rows::kOperand>>(acc[step % kNumAcc][n][b], a, q[0], q[1]);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kNumSteps; ++n) {
#pragma unroll
      for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scores[n][b][i] = kNumAcc == 1 ? acc[0][n][b][i]
                                         : __fadd_rn(acc[0][n][b][i], acc[kNumAcc - 1][n][b][i]);
        }
      }
    }
  }

  static __device__ void load_values(uint32_t rows, int n, ValueUnits& units) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint32_t own_rows = rows + Shape::first_token(2 * c() + e) * Rows::kRowBytes;
      const uint32_t swizzle = 16 * Shape::swizzle_of_row(2 * c() + e);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int i = 0; i < Rows::kValueUnits; ++i) {
          units.of[i][e + 2 * h] = Words<Rows::kValueUnitBytes>::load_shared(
              own_rows + (2 * n + h) * Shape::kTokenStep * Rows::kRowBytes +
              (((8 * i + g()) * Rows::kValueUnitBytes) ^ swizzle));
        }
      }
    }
  }

  __device__ void accumulate_pv(const ValueUnits& units, const float (&weights)[kN8Tiles][4]) {
    constexpr int kPerWord = Rows::kElementsPerWord;
    uint32_t p[kN8Tiles][2];
#pragma unroll
    for (int b = 0; b < kN8Tiles; ++b) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        p[b][h] =
            ptx::movmatrix_trans(pack<Rows::kOperand>(weights[b][2 * h], weights[b][2 * h + 1]));
      }
    }
#pragma unroll
    for (int i = 0; i < Rows::kValueUnits; ++i) {
      const auto& tokens = units.of[i];
#pragma unroll
      for (int word = 0; word < Rows::kValueUnitBytes / 4; ++word) {
        uint32_t low[kPerWord], high[kPerWord];
        raw_value_pairs<kType>(tokens[0].words[word], tokens[1].words[word], low);
        raw_value_pairs<kType>(tokens[2].words[word], tokens[3].words[word], high);
#pragma unroll
        for (int e = 0; e < kPerWord; e += 2) {
          const int n = i * Rows::kValueUnitElements + word * kPerWord + e;
          const uint32_t a[4] = {low[e], low[e + 1], high[e], high[e + 1]};
#pragma unroll
          for (int b = 0; b < kN8Tiles; ++b) {
            ptx::mma_sync<MmaOf<Rows::kOperand>>(acc_o[n / 2][b], a, p[b][0], p[b][1]);
          }
        }
      }
    }
  }
};

}  // namespace halley::attention
