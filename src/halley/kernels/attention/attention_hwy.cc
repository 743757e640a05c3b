#include <algorithm>
#include <cstring>
#include <limits>

#include "halley/kernels/attention/attention_unit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "halley/kernels/attention/attention_hwy.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

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

// Converts rows of the keys or values of positions [range.begin, range.end) to f32: row i of
// `rows` is position tile_begin + i.
void load_rows(const AttentionCall& call, const AttentionUnit& unit, bool is_key,
               int64_t tile_begin, PositionRange range, float* rows) {
  const KvPageLayout& layout = call.cache.layout;
  const size_t page_bytes = layout.page_bytes();
  for (int64_t position = range.begin; position < range.end; ++position) {
    const int64_t slot = position % layout.page_tokens;
    const auto page = static_cast<size_t>(
        unit.sequence->page_table[static_cast<size_t>(position / layout.page_tokens)]);
    const size_t offset =
        is_key ? layout.key_offset(unit.kv_head, slot) : layout.value_offset(unit.kv_head, slot);
    convert_row(layout.dtype, call.cache.pages + page * page_bytes + offset,
                static_cast<size_t>(layout.head_dim),
                rows + (position - tile_begin) * call.row_stride());
  }
}

// Turns a row's scores into weights relative to `largest` and returns their sum.
float weigh_row(PositionRange visible, float largest, float* scores) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto shift = hn::Set(d, largest);
  auto sum = hn::Zero(d);
  for (size_t i = 0; i < kTileTokens; i += lanes) {
    const auto index = hn::Iota(d, static_cast<float>(i));
    const auto is_visible = hn::And(hn::Ge(index, hn::Set(d, static_cast<float>(visible.begin))),
                                    hn::Lt(index, hn::Set(d, static_cast<float>(visible.end))));
    const auto weight = hn::IfThenElseZero(
        is_visible, exp_not_positive(d, hn::Sub(hn::Load(d, scores + i), shift)));
    hn::Store(weight, d, scores + i);
    sum = hn::Add(sum, weight);
  }
  return sum_lanes(d, sum);
}

// Scales and caps a row's scores and returns the largest visible one.
float scale_row(const AttentionProblem& problem, PositionRange visible, float* scores) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto scale = hn::Set(d, problem.scale);
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto largest = lowest;
  for (size_t i = 0; i < kTileTokens; i += lanes) {
    auto score = hn::Mul(hn::Load(d, scores + i), scale);
    if (problem.soft_cap > 0) {
      const auto cap = hn::Set(d, problem.soft_cap);
      score = hn::Mul(cap, tanh_f32(d, hn::Div(score, cap)));
    }
    hn::Store(score, d, scores + i);
    const auto index = hn::Iota(d, static_cast<float>(i));
    const auto is_visible = hn::And(hn::Ge(index, hn::Set(d, static_cast<float>(visible.begin))),
                                    hn::Lt(index, hn::Set(d, static_cast<float>(visible.end))));
    largest = hn::Max(largest, hn::IfThenElse(is_visible, score, lowest));
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest));
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

// The online softmax of one tile for the rows of tokens [tokens.begin, tokens.end).
void softmax_tile(const AttentionCall& call, const AttentionUnit& unit, PositionRange tokens,
                  int64_t tile_begin, const AttentionScratch& scratch, const RowStates& states) {
  const int64_t group = call.group_size();
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const PositionRange visible = visible_in_tile(call.problem, unit.position(token), tile_begin);
    for (int64_t row = token * group; row < (token + 1) * group; ++row) {
      float* scores = scratch.scores + row * kTileTokens;
      const float tile_largest = scale_row(call.problem, visible, scores);
      const hn::CappedTag<float, 4> d1;
      const auto before = hn::Set(d1, states.largest[row]);
      const auto after = hn::Max(before, hn::Set(d1, tile_largest));
      const auto shift = finite_shift(d1, after);
      const float rescale = hn::GetLane(rescale_factor(d1, before, shift));
      const float sum = weigh_row(visible, hn::GetLane(shift), scores);
      states.largest[row] = hn::GetLane(after);
      states.sum[row] = states.sum[row] * rescale + sum;
      scratch.rescale[row] = rescale;
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
  transpose_rows(scratch.rows, call.row_stride(), scratch.keys);
  multiply_keys(scratch, {tokens.begin * group, tokens.end * group}, call.cache.layout.head_dim);
  load_rows(call, unit, false, tile_begin, positions, scratch.rows);
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
