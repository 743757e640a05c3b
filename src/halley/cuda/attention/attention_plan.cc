#include "halley/cuda/attention/attention_plan.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr int64_t kHeadDimMax = 256;
// Decode items that a batch may have in addition to 8 a row, however it is split.
constexpr int64_t kFewItems = 1024;

int32_t narrow(int64_t value) {
  HALLEY_CHECK(value >= 0 && value <= std::numeric_limits<int32_t>::max(), value);
  return static_cast<int32_t>(value);
}

int64_t first_visible(const AttentionProblem& problem, int64_t position) {
  const bool is_cut = problem.window > 0 && position >= problem.window;
  return is_cut ? position - problem.window + 1 : 0;
}

void add_decode_items(const AttentionProblem& problem, const BatchSequence& sequence,
                      DecodeItem item, int64_t chosen_split, AttentionPlan& plan) {
  const std::vector<int64_t> bounds =
      split_boundaries(problem, sequence.num_past_tokens, chosen_split);
  item.row = narrow(sequence.first_row);
  item.num_splits = narrow(static_cast<int64_t>(bounds.size()) - 1);
  item.first_partial = narrow(plan.num_partials);
  for (item.split = 0; item.split < item.num_splits; ++item.split) {
    item.begin = narrow(bounds[static_cast<size_t>(item.split)]);
    item.end = narrow(bounds[static_cast<size_t>(item.split) + 1]);
    plan.decode_items.push_back(item);
  }
  if (item.num_splits > 1) plan.num_partials += item.num_splits;
}

void add_prefill_items(const AttentionProblem& problem, const BatchSequence& sequence,
                       int64_t group_size, int64_t rows_per_item, PrefillItem item,
                       AttentionPlan& plan) {
  const int64_t num_rows = sequence.num_new_tokens * group_size;
  item.first_row = narrow(sequence.first_row);
  item.num_past_tokens = narrow(sequence.num_past_tokens);
  item.num_new_tokens = narrow(sequence.num_new_tokens);
  for (int64_t begin = 0; begin < num_rows; begin += rows_per_item) {
    const int64_t last_row = std::min(begin + rows_per_item, num_rows) - 1;
    item.query_begin = narrow(begin);
    item.begin = narrow(first_visible(problem, sequence.num_past_tokens + begin / group_size));
    item.end = narrow(sequence.num_past_tokens + last_row / group_size + 1);
    plan.prefill_items.push_back(item);
  }
}

/// The decodes of a batch.
struct DecodeLoad {
  std::vector<int64_t> visible;  // positions that each one sees
  int64_t longest = 0;
  int64_t num_bytes = 0;  // of all keys and values
};

/// Microseconds on an H200 until the teams of warps of all CTAs have done `num_items` items, the
/// largest of `item_bytes`. An item costs a team some, and so does each of its bytes while all
/// teams read. With fewer teams each one reads faster, and so do the last ones of a batch.
double decode_us(const DecodeLoad& load, int64_t item_bytes, int64_t num_items, int64_t num_ctas,
                 bool is_warp_per_item) {
  constexpr double kItemUs = 6, kItemOfWarpUs = 16, kByteUs = 1.0 / 16000;  // a byte's of a CTA
  constexpr double kFewTeams = 0.6, kLastItem = 1.0 / 6;
  // All warps of a CTA read an item's tiles at the same time.
  constexpr int64_t kItemBytesLeast = 32768;
  const double one_us = is_warp_per_item ? kItemOfWarpUs : kItemUs;
  const int64_t teams_of_cta = is_warp_per_item ? kDecodeWarps : 1;
  const int64_t num_teams = num_ctas * teams_of_cta;
  const double byte_us = kByteUs * static_cast<double>(teams_of_cta);
  const int64_t least = kItemBytesLeast / teams_of_cta;
  const double share = static_cast<double>(num_items) / static_cast<double>(num_teams);
  const double item_us = one_us + std::clamp(share, kFewTeams, 1.0) * byte_us *
                                      static_cast<double>(std::max(item_bytes, least));
  if (num_items <= num_teams) return item_us;  // each team has one item
  const double all =
      one_us * static_cast<double>(num_items) + byte_us * static_cast<double>(load.num_bytes);
  return std::max(item_us, all / static_cast<double>(num_teams) + kLastItem * item_us);
}

double combine_us(int64_t num_splits) {
  constexpr double kCombineUs = 2, kSplitUs = 0.1;
  return num_splits > 1 ? kCombineUs + kSplitUs * static_cast<double>(num_splits) : 0;
}

}  // namespace

int64_t split_tokens(int64_t num_visible) {
  // One sequence with 8 kv heads then has 64 items at 1024, 4096 and 8192 positions and 256 at
  // 32768, for the 264 CTAs of an H200. There an item costs a CTA about 6 us, and 256 of its
  // positions 2 to 8 us more, by their bytes: smaller splits make a single sequence faster and
  // large batches slower.
  if (num_visible <= 1024) return 128;
  if (num_visible <= 4096) return 512;
  // A window need not begin at a boundary, which costs one split more than the division says.
  const int64_t least = ceil_div(num_visible, kNumSplitsMax - 1);
  return std::max<int64_t>(1024, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(least))));
}

int64_t num_decode_units(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim) {
  const int64_t group_size = num_heads / num_kv_heads;
  return num_kv_heads * ceil_div<int64_t>(group_size, decode_rows(group_size, head_dim));
}

DecodeSplit choose_decode_split(const AttentionProblem& problem, int64_t num_units,
                                int64_t position_bytes, int64_t num_ctas,
                                std::span<const BatchSequence> sequences) {
  DecodeLoad load;
  for (const BatchSequence& sequence : sequences) {
    if (sequence.num_new_tokens != 1) continue;
    const int64_t position = sequence.num_past_tokens;
    load.visible.push_back(position + 1 - first_visible(problem, position));
    load.longest = std::max(load.longest, load.visible.back());
    load.num_bytes += load.visible.back() * num_units * position_bytes;
  }
  const auto num_rows = static_cast<int64_t>(load.visible.size());
  DecodeSplit best;
  double best_time = std::numeric_limits<double>::infinity();
  for (int64_t step = 64; best.tokens == 0 || step / 2 < load.longest; step *= 2) {
    if (ceil_div(load.longest, step) > kNumSplitsMax - 1) continue;
    int64_t num_items = 0;
    for (const int64_t count : load.visible) num_items += ceil_div(count, step) * num_units;
    if (step < load.longest && num_items / num_units > 8 * num_rows + kFewItems) continue;
    for (const bool is_warp_per_item : {false, true}) {
      if (is_warp_per_item && num_items <= num_ctas * kDecodeWarps) continue;
      const double time = decode_us(load, std::min(step, load.longest) * position_bytes, num_items,
                                    num_ctas, is_warp_per_item) +
                          combine_us(ceil_div(load.longest, step));
      if (time >= best_time) continue;
      best_time = time;
      best = {step, is_warp_per_item};
    }
  }
  return best;
}

std::vector<int64_t> split_boundaries(const AttentionProblem& problem, int64_t position,
                                      int64_t chosen) {
  const int64_t begin = first_visible(problem, position), end = position + 1;
  const int64_t step = chosen > 0 ? chosen : split_tokens(end - begin);
  const int64_t last_least = chosen > 0 ? chosen / 2 : 1;
  std::vector<int64_t> bounds = {begin};
  for (int64_t bound = begin / step * step + step; bound + last_least <= end; bound += step) {
    bounds.push_back(bound);
  }
  bounds.push_back(end);
  return bounds;
}

AttentionPlan plan_attention(const AttentionProblem& problem, int64_t num_kv_heads,
                             int64_t table_stride, int64_t rows_per_item,
                             std::span<const BatchSequence> sequences, int64_t chosen_split) {
  HALLEY_CHECK(num_kv_heads >= 1 && rows_per_item >= 1, num_kv_heads, rows_per_item);
  AttentionPlan plan;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const BatchSequence& sequence = sequences[i];
    HALLEY_CHECK(sequence.num_new_tokens >= 1 && sequence.num_past_tokens >= 0,
                 sequence.num_new_tokens, sequence.num_past_tokens);
    const auto index = static_cast<int64_t>(i);
    if (sequence.num_new_tokens == 1) {
      DecodeItem item;
      item.table_begin = narrow(index * table_stride);
      item.sequence = narrow(index);
      add_decode_items(problem, sequence, item, chosen_split, plan);
    } else {
      PrefillItem item;
      item.table_begin = narrow(index * table_stride);
      add_prefill_items(problem, sequence, problem.num_heads / num_kv_heads, rows_per_item, item,
                        plan);
    }
  }
  const auto is_longer = [](const auto& a, const auto& b) {
    return a.end - a.begin > b.end - b.begin;
  };
  std::stable_sort(plan.decode_items.begin(), plan.decode_items.end(), is_longer);
  std::stable_sort(plan.prefill_items.begin(), plan.prefill_items.end(), is_longer);
  return plan;
}

int64_t num_decode_items_max(int64_t num_sequences, int64_t num_tokens) {
  // Up to 4096 positions a row has 8 splits, and one more with a window; above, one for each 512 or
  // more positions, and two for the ends. The plan chooses shorter splits only for small batches.
  return std::min(10 * num_sequences + num_tokens / 512 + kFewItems, kNumSplitsMax * num_sequences);
}

int copy_bytes(const KvPageLayout& layout) {
  for (const size_t width : {size_t{16}, size_t{8}}) {
    if (layout.row_bytes() % width == 0 && layout.page_bytes() % width == 0) {
      return static_cast<int>(width);
    }
  }
  return 4;
}

std::string why_not_cuda_attention(const AttentionProblem& problem, const KvPageLayout& layout,
                                   DType activation_dtype) {
  if (layout.dtype == KvDType::kF32) return "a KV cache of f32; use f16 or bf16";
  if (activation_dtype != DType::kF16 && activation_dtype != DType::kBf16) {
    return str("activations of ", activation_dtype, "; f16 and bf16 are served");
  }
  if (layout.head_dim % 8 != 0) {
    return str("head_dim ", layout.head_dim, " is not a multiple of 8");
  }
  if (layout.head_dim < 8 || layout.head_dim > kHeadDimMax) {
    return str("head_dim ", layout.head_dim, " is above ", kHeadDimMax);
  }
  if (layout.num_kv_heads < 1 || problem.num_heads % layout.num_kv_heads != 0) {
    return str(problem.num_heads, " heads do not divide among ", layout.num_kv_heads, " kv heads");
  }
  return {};
}

}  // namespace halley
