// Q K^T and P V for a tile of keys and values and rows of queries and weights.
#if defined(HALLEY_KERNELS_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HALLEY_KERNELS_ATTENTION_TILE_INL_H_
#undef HALLEY_KERNELS_ATTENTION_TILE_INL_H_
#else
#define HALLEY_KERNELS_ATTENTION_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "halley/kernels/attention/attention_unit.h"
#include "halley/kernels/base/vector_math-inl.h"

// Loops over arrays of vectors must be unrolled for the arrays to live in registers.
#ifndef HALLEY_UNROLL
#ifdef __clang__
#define HALLEY_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HALLEY_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace halley {
namespace HWY_NAMESPACE {

// A tile of accumulators is kRows x kVectors registers: 12 for them leave 4 of 16 for the operands.
inline constexpr size_t kTileLanes = hn::MaxLanes(hn::ScalableTag<float>());
inline constexpr size_t kTileVectors = HWY_MIN(4, size_t{kTileTokens} / kTileLanes);
inline constexpr size_t kTileRows = 12 / kTileVectors;

#if HWY_TARGET == HWY_SCALAR
inline void transpose_rows(const float* rows, int64_t stride, float* columns) {
  for (int64_t token = 0; token < kTileTokens; ++token) {
    for (int64_t i = 0; i < stride; ++i) {
      columns[i * kTileTokens + token] = rows[token * stride + i];
    }
  }
}
#else
// A vector whose block b of 4 lanes holds 4 elements of row 4 b.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const float* from, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::Load(d, from);
  } else {
    const hn::Half<D> half;
    constexpr auto kHalfRows = static_cast<int64_t>(hn::MaxLanes(D()) / 2);
    return hn::Combine(d, load_blocks(half, from + kHalfRows * stride, stride),
                       load_blocks(half, from, stride));
  }
}

// rows [kTileTokens, stride] -> columns [stride, kTileTokens]
inline void transpose_rows(const float* rows, int64_t stride, float* columns) {
  const hn::ScalableTag<float> d;
  const hn::RepartitionToWide<decltype(d)> d_pair;
  for (int64_t token = 0; token < kTileTokens; token += static_cast<int64_t>(kTileLanes)) {
    for (int64_t i = 0; i < stride; i += 4) {
      const float* from = rows + token * stride + i;
      const auto row0 = load_blocks(d, from, stride);
      const auto row1 = load_blocks(d, from + stride, stride);
      const auto row2 = load_blocks(d, from + 2 * stride, stride);
      const auto row3 = load_blocks(d, from + 3 * stride, stride);
      const auto low01 = hn::BitCast(d_pair, hn::InterleaveLower(d, row0, row1));
      const auto low23 = hn::BitCast(d_pair, hn::InterleaveLower(d, row2, row3));
      const auto high01 = hn::BitCast(d_pair, hn::InterleaveUpper(d, row0, row1));
      const auto high23 = hn::BitCast(d_pair, hn::InterleaveUpper(d, row2, row3));
      float* to = columns + i * kTileTokens + token;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d_pair, low01, low23)), d, to);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d_pair, low01, low23)), d, to + kTileTokens);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d_pair, high01, high23)), d,
                to + 2 * kTileTokens);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d_pair, high01, high23)), d,
                to + 3 * kTileTokens);
    }
  }
}
#endif  // HWY_TARGET == HWY_SCALAR

// scores[row, token] = sum over i, ascending, of queries[row][i] * keys[i, token]
template <size_t kRows>
HWY_INLINE void multiply_keys_rows(const float* const* queries, const float* keys, int64_t head_dim,
                                   float* scores) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  for (size_t token = 0; token < kTileTokens; token += kTileVectors * kTileLanes) {
    V acc[kRows][kTileVectors];
    HALLEY_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      HALLEY_UNROLL
      for (size_t v = 0; v < kTileVectors; ++v) acc[r][v] = hn::Zero(d);
    }
    for (int64_t i = 0; i < head_dim; ++i) {
      const float* column = keys + i * kTileTokens + token;
      V query[kRows];
      HALLEY_UNROLL
      for (size_t r = 0; r < kRows; ++r) query[r] = hn::Set(d, queries[r][i]);
      HALLEY_UNROLL
      for (size_t v = 0; v < kTileVectors; ++v) {
        const V key = hn::Load(d, column + v * kTileLanes);
        HALLEY_UNROLL
        for (size_t r = 0; r < kRows; ++r) acc[r][v] = hn::MulAdd(query[r], key, acc[r][v]);
      }
    }
    HALLEY_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      HALLEY_UNROLL
      for (size_t v = 0; v < kTileVectors; ++v) {
        hn::Store(acc[r][v], d, scores + r * kTileTokens + token + v * kTileLanes);
      }
    }
  }
}

// The last rows, fewer than a tile has, all at once: one row alone would wait for its own
// accumulators.
template <size_t kRows>
HWY_INLINE void multiply_keys_rest(size_t num_rows, const float* const* queries, const float* keys,
                                   int64_t head_dim, float* scores) {
  if constexpr (kRows > 0) {
    if (num_rows == kRows) {
      multiply_keys_rows<kRows>(queries, keys, head_dim, scores);
    } else {
      multiply_keys_rest<kRows - 1>(num_rows, queries, keys, head_dim, scores);
    }
  }
}

inline void multiply_keys(const AttentionScratch& scratch, PositionRange rows, int64_t head_dim) {
  int64_t row = rows.begin;
  for (; row + static_cast<int64_t>(kTileRows) <= rows.end; row += kTileRows) {
    multiply_keys_rows<kTileRows>(scratch.queries + row, scratch.keys, head_dim,
                                  scratch.scores + row * kTileTokens);
  }
  multiply_keys_rest<kTileRows - 1>(static_cast<size_t>(rows.end - row), scratch.queries + row,
                                    scratch.keys, head_dim, scratch.scores + row * kTileTokens);
}

// Operands of add_weighted_values(); see RowStates and AttentionScratch.
struct WeightedRows {
  const float* weights;  // [rows, kTileTokens]
  const float* rescale;  // [rows]
  const float* values;   // [kTileTokens, stride]
  float* acc;            // [rows, stride]
  int64_t stride;
};

// acc[row, i] = acc[row, i] * rescale[row], then + weights[row, t] * values[t, i] for the tokens t
// of `visible` in ascending order; columns [column, column + kVectors * lanes)
template <size_t kRows, size_t kVectors>
HWY_INLINE void add_weighted_columns(const WeightedRows& w, int64_t row, PositionRange visible,
                                     int64_t column) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  float* to = w.acc + row * w.stride + column;
  const float* weights = w.weights + row * kTileTokens;
  V acc[kRows][kVectors];
  HALLEY_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    const V rescale = hn::Set(d, w.rescale[row + static_cast<int64_t>(r)]);
    HALLEY_UNROLL
    for (size_t v = 0; v < kVectors; ++v) {
      const float* from = to + static_cast<int64_t>(r) * w.stride + v * kTileLanes;
      acc[r][v] = hn::Mul(hn::Load(d, from), rescale);
    }
  }
  for (int64_t t = visible.begin; t < visible.end; ++t) {
    const float* value_row = w.values + t * w.stride + column;
    V weight[kRows];
    HALLEY_UNROLL
    for (size_t r = 0; r < kRows; ++r) weight[r] = hn::Set(d, weights[r * kTileTokens + t]);
    HALLEY_UNROLL
    for (size_t v = 0; v < kVectors; ++v) {
      const V value = hn::Load(d, value_row + v * kTileLanes);
      HALLEY_UNROLL
      for (size_t r = 0; r < kRows; ++r) acc[r][v] = hn::MulAdd(weight[r], value, acc[r][v]);
    }
  }
  HALLEY_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    HALLEY_UNROLL
    for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(acc[r][v], d, to + static_cast<int64_t>(r) * w.stride + v * kTileLanes);
    }
  }
}

template <size_t kRows>
HWY_INLINE void add_weighted_rows(const WeightedRows& w, int64_t row, PositionRange visible,
                                  int64_t head_dim) {
  constexpr auto kStep = static_cast<int64_t>(kTileVectors * kTileLanes);
  int64_t column = 0;
  for (; column + kStep <= head_dim; column += kStep) {
    add_weighted_columns<kRows, kTileVectors>(w, row, visible, column);
  }
  for (; column < head_dim; column += static_cast<int64_t>(kTileLanes)) {
    add_weighted_columns<kRows, 1>(w, row, visible, column);
  }
}

template <size_t kRows>
HWY_INLINE void add_weighted_rest(size_t num_rows, const WeightedRows& w, int64_t row,
                                  PositionRange visible, int64_t head_dim) {
  if constexpr (kRows > 0) {
    if (num_rows == kRows) {
      add_weighted_rows<kRows>(w, row, visible, head_dim);
    } else {
      add_weighted_rest<kRows - 1>(num_rows, w, row, visible, head_dim);
    }
  }
}

inline void add_weighted_values(const WeightedRows& w, PositionRange rows, PositionRange visible,
                                int64_t head_dim) {
  int64_t row = rows.begin;
  for (; row + static_cast<int64_t>(kTileRows) <= rows.end; row += kTileRows) {
    add_weighted_rows<kTileRows>(w, row, visible, head_dim);
  }
  add_weighted_rest<kTileRows - 1>(static_cast<size_t>(rows.end - row), w, row, visible, head_dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#endif  // HALLEY_KERNELS_ATTENTION_TILE_INL_H_
