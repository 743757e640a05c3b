// One warp's sums over tiles of keys and values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/decode_fragments.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/decode_softmax.cuh"
#include "halley/cuda/attention/query_rows.cuh"

namespace halley::attention {

/// A warp's queries, sums of values and softmax in one piece of work.
template <typename TheShape>
struct DecodeWarp {
  using Shape = TheShape;
  using Rows = typename Shape::Rows;
  using Softmax = DecodeSoftmax<Shape>;
  static constexpr KvDType kType = Shape::kDType;
  static constexpr int kBlocks = Shape::kBlocks8;
  static constexpr int kNumSteps = Shape::kNumSteps;

  uint32_t query[kBlocks][Rows::kSteps][2];
  Softmax softmax;
  // Columns n = 2m and 2m + 1 of values, rows g and g + 8 of m's transposed tile: [2 (n % 2) + j]
  // is of the element value_dim(n) and query 2c + j.
  float values[Rows::kColumns / 2][kBlocks][4];

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int g() { return lane() / 4; }
  static __device__ int c() { return lane() % 4; }

  /// The lane's part of the queries of a piece of work, on its way.
  struct Queries {
    QueryRow<kType, Shape::kPaddedHeadDim> of[kBlocks];

    __device__ void load(const DecodeParams& params, const DecodeWork& work) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const int row = g() + 8 * b;
        const int64_t element = work.item.row * params.activations.q_stride +
                                static_cast<int64_t>(work.first_head + row) * params.rows.head_dim;
        of[b].load(row < work.num_rows ? params.activations.q + 2 * element : nullptr,
                   params.rows.head_dim, params.activations.q_is_bf16);
      }
    }
  };

  __device__ void begin(const Queries& queries, const ScoreRule& rule) {
    float multiplier[kBlocks][2];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const auto& own = queries.of[b];
      const float own_multiplier = inverse_power(quad_max(own.greatest()));
      float own_sum = 0;
#pragma unroll
      for (int step = 0; step < Rows::kSteps; ++step) {
        own.operand(step, own_multiplier, query[b][step], own_sum);
      }
      if constexpr (Rows::kHasZeros) own_sum = quad_sum(own_sum) / code_unit<kType>();
        // From the lanes of a row to those of its column.
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
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (float& value : values[m][b]) value = 0;
      }
    }
  }

  /// Adds the tile at `stage`, whose first token is at `position`; of it, those in [begin, end).
  /// `is_copied_whole`: tokens outside stand there as well, and may be anything.
  __device__ void add_tile(uint32_t stage, int position, int begin, int end, bool is_copied_whole,
                           const ScoreRule& rule) {
    const bool sees_all = position >= begin && position + Shape::kTokens <= end;
    if (!Rows::kHasZeros && !sees_all && is_copied_whole) {
      clear_values(stage + Shape::kValues, begin - position, end - position);
    }
    typename Softmax::Scores scores;
    multiply_keys(stage, scores);
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
    float rescale[kBlocks][2];
    const bool rises = softmax.step(scores, tokens, rule, rescale);
    if (rises) {
#pragma unroll
      for (int m = 0; m < Rows::kColumns / 2; ++m) {
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
          for (int i = 0; i < 4; ++i) values[m][b][i] *= rescale[b][i % 2];
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kNumSteps; ++n) {
      if constexpr (!kHoldsValues) load_values(stage + Shape::kValues, n, units[n]);
      add_values(units[n], scores[n]);
    }
  }

  /// The head's element of column n in this lane.
  static __device__ int value_dim(int n) {
    const int unit = n / Rows::kValueUnitElements * 8 + g();
    return unit * Rows::kValueUnitElements + n % Rows::kValueUnitElements;
  }

 private:
  // Held from before the softmax on, which hides the wait for them.
  static constexpr bool kHoldsValues =
      Shape::kTokens * Rows::kRowBytes <= 4096 && kNumSteps * kBlocks <= 4;
  struct ValueUnits {  // of tokens e + 2h
    Words<Rows::kValueUnitBytes> of[Rows::kValueUnits][4];
  };

  // Bulk copies bring what a page has there, or nothing over what a stage had: times a weight of 0
  // it might still be no number.
  static __device__ void clear_values(uint32_t rows, int begin, int end) {
    for (int token = 0; token < Shape::kTokens; ++token) {
      if (token >= begin && token < end) continue;
      for (int byte = 16 * lane(); byte < Rows::kRowBytes; byte += 16 * 32) {
        store_shared_quad(rows + token * Rows::kRowBytes + byte, make_uint4(0, 0, 0, 0));
      }
    }
    fence_shared_for_async();
    __syncwarp();
  }

  // Where a tile has few steps, products that wait for each other are in two sums.
  __device__ void multiply_keys(uint32_t stage, typename Softmax::Scores& scores) const {
    constexpr int kSums = kNumSteps * kBlocks <= 2 ? 2 : 1;
    const uint32_t own_rows = stage + Shape::first_token(g()) * Rows::kRowBytes;
    const uint32_t exchange = 16 * Shape::exchange_of_row(g());
    constexpr int kStepBytes = Shape::kTokenStep * Rows::kRowBytes;
    float sums[kSums][kNumSteps][kBlocks][4] = {};
#pragma unroll
    for (int i = 0; i < Rows::kKeyUnits; ++i) {
#pragma unroll
      for (int n = 0; n < kNumSteps; ++n) {
        const uint32_t from =
            own_rows + 2 * n * kStepBytes + (((4 * i + c()) * Rows::kKeyUnitBytes) ^ exchange);
        const auto low = Words<Rows::kKeyUnitBytes>::load_shared(from);
        const auto high = Words<Rows::kKeyUnitBytes>::load_shared(from + kStepBytes);
#pragma unroll
        for (int step = 0; step < Rows::kKeyUnitSteps; ++step) {
          uint32_t of_low[2], of_high[2];
          raw_key_operand<kType>(low, step, of_low);
          raw_key_operand<kType>(high, step, of_high);
          const uint32_t a[4] = {of_low[0], of_high[0], of_low[1], of_high[1]};
#pragma unroll
          for (int b = 0; b < kBlocks; ++b) {
            const uint32_t(&q)[2] = query[b][i * Rows::kKeyUnitSteps + step];
            multiply_add<Rows::kOperand>(sums[step % kSums][n][b], a, q[0], q[1]);
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kNumSteps; ++n) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scores[n][b][i] =
              kSums == 1 ? sums[0][n][b][i] : __fadd_rn(sums[0][n][b][i], sums[kSums - 1][n][b][i]);
        }
      }
    }
  }

  static __device__ void load_values(uint32_t rows, int n, ValueUnits& units) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint32_t own_rows = rows + Shape::first_token(2 * c() + e) * Rows::kRowBytes;
      const uint32_t exchange = 16 * Shape::exchange_of_row(2 * c() + e);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int i = 0; i < Rows::kValueUnits; ++i) {
          units.of[i][e + 2 * h] = Words<Rows::kValueUnitBytes>::load_shared(
              own_rows + (2 * n + h) * Shape::kTokenStep * Rows::kRowBytes +
              (((8 * i + g()) * Rows::kValueUnitBytes) ^ exchange));
        }
      }
    }
  }

  __device__ void add_values(const ValueUnits& units, const float (&weights)[kBlocks][4]) {
    constexpr int kPerWord = Rows::kElementsPerWord;
    uint32_t p[kBlocks][2];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        p[b][h] = transpose_matrix(pack<Rows::kOperand>(weights[b][2 * h], weights[b][2 * h + 1]));
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
          for (int b = 0; b < kBlocks; ++b) {
            multiply_add<Rows::kOperand>(values[n / 2][b], a, p[b][0], p[b][1]);
          }
        }
      }
    }
  }
};

}  // namespace halley::attention
