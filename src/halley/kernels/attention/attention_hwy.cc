#include <algorithm>
#include <cstring>
#include <limits>

#include "halley/kernels/attention/attention_unit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/attention/attention_hwy.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "halley/kernels/attention/attention_rows-inl.h"
#include "halley/kernels/attention/attention_tile-inl.h"
#include "halley/kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace halley {
namespace HWY_NAMESPACE {

// The part of a tile, relative to its start, that a position sees.
PositionRange visible_in_tile(const AttentionProblem& problem, int64_t position,
                              int64_t tile_begin) {
  const PositionRange visible = visible_range(problem, position);
  return {std::max<int64_t>(visible.begin - tile_begin, 0),
          std::min<int64_t>(visible.end - tile_begin, kTileTokens)};
}

// Prefetches memory that the next tile will read. Pages lie anywhere, so that the hardware does not
// see them coming.
void prefetch_run(const std::byte* from, size_t num_bytes) {
  constexpr size_t kCacheLine = 64;
  for (size_t i = 0; i < num_bytes; i += kCacheLine) hwy::Prefetch(from + i);
}

// Calls use(rows, first position) for each run of `positions` that lies in one page.
template <class Use>
HWY_INLINE void for_each_run(const AttentionCall& call, const AttentionUnit& unit, bool is_key,
                             PositionRange positions, const Use& use) {
  const KvPageLayout& layout = call.cache.layout;
  const size_t page_bytes = layout.page_bytes();
  int64_t page_index = positions.begin / layout.page_tokens;
  int64_t slot = positions.begin % layout.page_tokens;
  for (int64_t position = positions.begin; position < positions.end;) {
    const int64_t count = std::min(layout.page_tokens - slot, positions.end - position);
    const auto page_number =
        static_cast<size_t>(unit.sequence->page_table[static_cast<size_t>(page_index)]);
    std::byte* page = call.cache.pages + page_number * page_bytes;
    const KvRow first = is_key ? layout.key_row(page, unit.kv_head, slot)
                               : layout.value_row(page, unit.kv_head, slot);
    use(PageRows{first.data, first.scale, count}, position);
    position += count;
    slot = 0;
    ++page_index;
  }
}

// Converts the keys or values of `positions` to f32: row i of `to` is position tile_begin + i.
void load_rows(const AttentionCall& call, const AttentionUnit& unit, bool is_key,
               int64_t tile_begin, PositionRange positions, float* to) {
  const KvPageLayout& layout = call.cache.layout;
  const RowShape shape{layout.dtype, layout.head_dim, layout.row_bytes(), call.row_stride()};
  for_each_run(call, unit, is_key, positions, [&](const PageRows& rows, int64_t position) {
    convert_rows(shape, rows, to + (position - tile_begin) * shape.stride);
  });
}

void prefetch_rows(const AttentionCall& call, const AttentionUnit& unit, bool is_key,
                   PositionRange positions) {
  const size_t row_bytes = call.cache.layout.row_bytes();
  const size_t scale_bytes = call.cache.layout.scale_bytes();
  for_each_run(call, unit, is_key, positions, [&](const PageRows& rows, int64_t /*position*/) {
    const auto count = static_cast<size_t>(rows.num_rows);
    prefetch_run(rows.from, count * row_bytes);
    prefetch_run(rows.scales, count * scale_bytes);  // of 0 bytes where there are none
  });
}

// Not inlined into the loops below, where it would cost registers that most models do not need.
template <class D>
HWY_NOINLINE hn::Vec<D> soft_cap(float cap, D d, hn::Vec<D> score) {
  const auto limit = hn::Set(d, cap);
  return hn::Mul(limit, tanh_f32(d, hn::Div(score, limit)));
}

// exp(before - after) for a running maximum that went from `before` to `after`.
template <class D>
HWY_INLINE hn::Vec<D> rescale_factor(D d, hn::Vec<D> before, hn::Vec<D> after) {
  return exp_not_positive(d, hn::Sub(before, after));
}

// -infinity - -infinity is not a number: a row whose scores are all -infinity so far is shifted by
// zero instead, which gives its weights the limit, zero.
template <class D>
HWY_INLINE hn::Vec<D> finite_shift(D d, hn::Vec<D> largest) {
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  return hn::IfThenZeroElse(hn::Eq(largest, lowest), largest);
}

// One row's part of the online softmax.
struct SoftmaxRow {
  float* scores;  // [kTileTokens]: dot products, then weights
  float largest, sum, rescale;
};

// Scales and caps the row's dot products, moves the running maximum, and turns the visible ones
// into weights and the others into zeros.
template <bool kIsWhole>
HWY_INLINE void softmax_row(const AttentionProblem& problem, PositionRange visible,
                            SoftmaxRow& row) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t kVectors = size_t{kTileTokens} / kTileLanes;
  const V lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const V scale = hn::Set(d, problem.scale);
  const V first = hn::Set(d, static_cast<float>(visible.begin));
  const V end = hn::Set(d, static_cast<float>(visible.end));
  V score[kVectors];
  V tile_largest = lowest;
  HALLEY_UNROLL
  for (size_t v = 0; v < kVectors; ++v) {
    score[v] = hn::Mul(hn::Load(d, row.scores + v * kTileLanes), scale);
    if (problem.soft_cap > 0) [[unlikely]]
      score[v] = soft_cap(problem.soft_cap, d, score[v]);
    if constexpr (!kIsWhole) {
      const V index = hn::Iota(d, static_cast<float>(v * kTileLanes));
      const auto is_visible = hn::And(hn::Ge(index, first), hn::Lt(index, end));
      score[v] = hn::IfThenElse(is_visible, score[v], lowest);
    }
    tile_largest = hn::Max(tile_largest, score[v]);
  }
  const V before = hn::Set(d, row.largest);
  const V after = hn::Max(before, hn::MaxOfLanes(d, tile_largest));
  const V shift = finite_shift(d, after);
  // Most tiles do not move the maximum, and exp(0) is exactly 1.
  row.rescale = 1.0f;
  if (hn::GetLane(shift) != row.largest) {
    row.rescale = hn::GetLane(rescale_factor(d, before, shift));
  }
  V sum = hn::Zero(d);
  HALLEY_UNROLL
  for (size_t v = 0; v < kVectors; ++v) {
    const V weight = exp_not_positive(d, hn::Sub(score[v], shift));
    hn::Store(weight, d, row.scores + v * kTileLanes);
    sum = hn::Add(sum, weight);
  }
  row.largest = hn::GetLane(after);
  row.sum = row.sum * row.rescale + sum_lanes(d, sum);
}

// The online softmax of one tile for the rows of tokens [tokens.begin, tokens.end).
void softmax_tile(const AttentionCall& call, const AttentionUnit& unit, PositionRange tokens,
                  int64_t tile_begin, const AttentionScratch& scratch, const RowStates& states) {
  const int64_t group = call.group_size();
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const PositionRange visible = visible_in_tile(call.problem, unit.position(token), tile_begin);
    const bool is_whole = visible.begin == 0 && visible.end == kTileTokens;
    for (int64_t index = token * group; index < (token + 1) * group; ++index) {
      SoftmaxRow row{scratch.scores + index * kTileTokens, states.largest[index], states.sum[index],
                     1.0f};
      if (is_whole) {
        softmax_row<true>(call.problem, visible, row);
      } else {
        softmax_row<false>(call.problem, visible, row);
      }
      states.largest[index] = row.largest;
      states.sum[index] = row.sum;
      scratch.rescale[index] = row.rescale;
    }
  }
}

// Adds the tile's weighted values: tokens that see the whole tile together, the others one by one
// with exactly the values that they see, since 0 * NaN of an unseen value is not 0.
void add_values(const AttentionCall& call, const AttentionUnit& unit, PositionRange tokens,
                int64_t tile_begin, const AttentionScratch& scratch, const RowStates& states) {
  const int64_t group = call.group_size();
  const WeightedRows weighted{scratch.scores, scratch.rescale, scratch.rows, states.values,
                              call.row_stride()};
  int64_t token = tokens.begin;
  while (token < tokens.end) {
    const PositionRange visible = visible_in_tile(call.problem, unit.position(token), tile_begin);
    int64_t end = token + 1;
    if (visible.begin == 0 && visible.end == kTileTokens) {
      while (end < tokens.end) {
        const PositionRange next = visible_in_tile(call.problem, unit.position(end), tile_begin);
        if (next.begin != 0 || next.end != kTileTokens) break;
        ++end;
      }
    }
    add_weighted_values(weighted, {token * group, end * group}, visible,
                        call.cache.layout.head_dim);
    token = end;
  }
}

void attend_tile(const AttentionCall& call, const AttentionUnit& unit, int64_t tile_begin,
                 const AttentionScratch& scratch, const RowStates& states) {
  // The unit's tokens that see some of the tile are consecutive.
  PositionRange tokens{0, unit.num_tokens};
  const auto sees_tile = [&](int64_t token) {
    const PositionRange visible = visible_in_tile(call.problem, unit.position(token), tile_begin);
    return visible.begin < visible.end;
  };
  while (tokens.begin < tokens.end && !sees_tile(tokens.begin)) ++tokens.begin;
  while (tokens.begin < tokens.end && !sees_tile(tokens.end - 1)) --tokens.end;
  if (tokens.begin == tokens.end) return;
  const PositionRange positions{
      std::max(tile_begin, visible_range(call.problem, unit.position(tokens.begin)).begin),
      std::min(tile_begin + kTileTokens, unit.position(tokens.end - 1) + 1)};
  const int64_t group = call.group_size();
  load_rows(call, unit, true, tile_begin, positions, scratch.rows);
  const bool is_decode = unit.num_tokens == 1;  // a prefill reads too little to wait for memory
  if (is_decode) prefetch_rows(call, unit, false, positions);
  transpose_rows(scratch.rows, call.row_stride(), scratch.keys);
  multiply_keys(scratch, {tokens.begin * group, tokens.end * group}, call.cache.layout.head_dim);
  load_rows(call, unit, false, tile_begin, positions, scratch.rows);
  if (is_decode) {
    const int64_t end = unit.position(0) + 1;
    prefetch_rows(call, unit, true, {positions.end, std::min(positions.end + kTileTokens, end)});
  }
  softmax_tile(call, unit, tokens, tile_begin, scratch, states);
  add_values(call, unit, tokens, tile_begin, scratch, states);
}

void attend_split_simd(const AttentionCall& call, const AttentionUnit& unit, int64_t split,
                       const AttentionScratch& scratch, const RowStates& states) {
  const int64_t group = call.group_size();
  const int64_t num_rows = unit.num_tokens * group;
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t m = unit.sequence->first_row + unit.first_token + row / group;
    const int64_t head = unit.kv_head * group + row % group;
    scratch.queries[row] = call.q.row<float>(m) + head * call.cache.layout.head_dim;
    states.largest[row] = -std::numeric_limits<float>::infinity();
    states.sum[row] = 0.0f;
  }
  std::memset(states.values, 0, static_cast<size_t>(num_rows * call.row_stride()) * sizeof(float));
  const int64_t begin =
      std::max(split * kSplitTokens,
               visible_range(call.problem, unit.position(0)).begin / kTileTokens * kTileTokens);
  const int64_t end = std::min((split + 1) * kSplitTokens, unit.position(unit.num_tokens - 1) + 1);
  for (int64_t tile_begin = begin; tile_begin < end; tile_begin += kTileTokens) {
    attend_tile(call, unit, tile_begin, scratch, states);
  }
}

void merge_split_simd(const AttentionCall& call, const AttentionUnit& unit, int64_t split,
                      const RowStates& from, const RowStates& into) {
  const hn::ScalableTag<float> d;
  const int64_t group = call.group_size();
  const int64_t stride = call.row_stride();
  for (int64_t row = 0; row < unit.num_tokens * group; ++row) {
    const PositionRange visible = visible_range(call.problem, unit.position(row / group));
    const int64_t first_split = visible.begin / kSplitTokens;
    if (split < first_split || split > (visible.end - 1) / kSplitTokens) continue;
    const float* add = from.values + row * stride;
    float* values = into.values + row * stride;
    if (split == first_split) {
      into.largest[row] = from.largest[row];
      into.sum[row] = from.sum[row];
      std::memcpy(values, add, static_cast<size_t>(stride) * sizeof(float));
      continue;
    }
    const auto before = hn::Set(d, into.largest[row]);
    const auto other = hn::Set(d, from.largest[row]);
    const auto after = hn::Max(before, other);
    const auto shift = finite_shift(d, after);
    const auto scale = rescale_factor(d, before, shift);
    const auto scale_other = rescale_factor(d, other, shift);
    into.largest[row] = hn::GetLane(after);
    into.sum[row] = into.sum[row] * hn::GetLane(scale) + from.sum[row] * hn::GetLane(scale_other);
    for (int64_t i = 0; i < stride; i += static_cast<int64_t>(hn::Lanes(d))) {
      const auto scaled = hn::Mul(hn::Load(d, values + i), scale);
      hn::Store(hn::MulAdd(hn::Load(d, add + i), scale_other, scaled), d, values + i);
    }
  }
}

void write_output_simd(const AttentionCall& call, const AttentionUnit& unit,
                       const RowStates& states) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const int64_t group = call.group_size();
  const auto head_dim = static_cast<size_t>(call.cache.layout.head_dim);
  for (int64_t row = 0; row < unit.num_tokens * group; ++row) {
    const int64_t m = unit.sequence->first_row + unit.first_token + row / group;
    const int64_t head = unit.kv_head * group + row % group;
    float* to = call.out.row<float>(m) + static_cast<size_t>(head) * head_dim;
    const float* values = states.values + row * call.row_stride();
    const auto sum = hn::Set(d, states.sum[row]);
    size_t i = 0;
    for (; i + lanes <= head_dim; i += lanes) {
      hn::StoreU(hn::Div(hn::Load(d, values + i), sum), d, to + i);
    }
    if (i < head_dim) store_first(hn::Div(hn::Load(d, values + i), sum), d, to + i, head_dim - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace halley
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halley {
HWY_EXPORT(attend_split_simd);
HWY_EXPORT(merge_split_simd);
HWY_EXPORT(write_output_simd);

void attend_split(const AttentionCall& call, const AttentionUnit& unit, int64_t split,
                  const AttentionScratch& scratch, const RowStates& states) {
  HWY_DYNAMIC_DISPATCH(attend_split_simd)(call, unit, split, scratch, states);
}

void merge_split(const AttentionCall& call, const AttentionUnit& unit, int64_t split,
                 const RowStates& from, const RowStates& into) {
  HWY_DYNAMIC_DISPATCH(merge_split_simd)(call, unit, split, from, into);
}

void write_output(const AttentionCall& call, const AttentionUnit& unit, const RowStates& states) {
  HWY_DYNAMIC_DISPATCH(write_output_simd)(call, unit, states);
}

}  // namespace halley
#endif  // HWY_ONCE
