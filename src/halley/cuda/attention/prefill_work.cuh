// Work tiles of the prefill kernel and their static schedule.
#pragma once

#include <cstdint>

#include "halley/cuda/attention/attention_params.h"

namespace halley::attention {

/// `n` / d for small integers with per_d = 1 / d: exact, since n + 1/2 is far from multiples of d.
__device__ inline int quotient(int n, float per_d) {
  return static_cast<int>((static_cast<float>(n) + 0.5f) * per_d);
}

/// A work tile: a query tile of one sequence and kv head.
struct PrefillWork {
  PrefillItem item;
  int kv_head = 0;
  int group_size = 0;
  int first_token = 0, first_head = 0;  // of the work tile's first query row; a head of the group
  float per_group = 0;                  // 1 / group_size

  /// Whether the row (one of kPrefillRows) exists.
  __device__ bool is_row(int row) const {
    return item.query_begin + row < item.num_new_tokens * group_size;
  }
  __device__ int tokens_before(int row) const { return quotient(first_head + row, per_group); }
  __device__ int token(int row) const { return first_token + tokens_before(row); }
  /// Element of the row's first column, in activations with rows `stride` apart.
  __device__ int64_t element(int row, int64_t stride, int head_dim) const {
    const int tokens = tokens_before(row);
    const int head = (kv_head - tokens) * group_size + first_head + row;
    return (item.first_row + first_token + tokens) * stride + head * head_dim;
  }
  __device__ bool is_position(int position) const {
    return position >= item.begin && position < item.end;
  }
};

/// The static tile schedule: items are sorted by length, and CTAs take work tiles in serpentine
/// order, so that all have about the same number of positions. An item has one work tile for each
/// kv head.
struct PrefillSchedule {
  const PrefillParams& params;

  /// False: the CTA has no work tile in this round, nor later.
  __device__ bool get(uint32_t round, PrefillWork& work) const {
    const uint32_t cta = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    const uint32_t index = round * gridDim.x + cta;
    const auto num_kv_heads = static_cast<uint32_t>(params.rows.num_kv_heads);
    if (index >= static_cast<uint32_t>(params.num_items) * num_kv_heads) return false;
    work.item = params.items[index / num_kv_heads];
    work.kv_head = static_cast<int>(index % num_kv_heads);
    work.group_size = params.rows.group_size;
    work.first_token = work.item.query_begin / work.group_size;
    work.first_head = work.item.query_begin % work.group_size;
    work.per_group = 1.0f / static_cast<float>(work.group_size);
    return true;
  }
};

}  // namespace halley::attention
