// What a block of a prefill kernel works on.
#pragma once

#include <cstdint>

#include "halley/cuda/attention/attention_params.h"

namespace halley::attention {

/// Some query rows of one sequence and kv head.
struct PrefillWork {
  PrefillItem item;
  int kv_head = 0;
  int group_size = 0;

  __device__ bool is_row(int row) const {
    return item.query_begin + row < item.num_new_tokens * group_size;
  }
  __device__ int token(int row) const { return (item.query_begin + row) / group_size; }
  /// Element of the row's first column, where rows of activations are `stride` apart.
  __device__ int64_t element(int row, int64_t stride, int head_dim) const {
    const int head = kv_head * group_size + (item.query_begin + row) % group_size;
    return (item.first_row + token(row)) * stride + static_cast<int64_t>(head) * head_dim;
  }
};

/// The work of a block: blocks of an item are its kv heads.
__device__ inline PrefillWork prefill_work(const PrefillParams& params, uint32_t block) {
  const auto num_kv_heads = static_cast<uint32_t>(params.rows.num_kv_heads);
  PrefillWork work;
  work.item = params.items[block / num_kv_heads];
  work.kv_head = static_cast<int>(block % num_kv_heads);
  work.group_size = params.rows.group_size;
  return work;
}

}  // namespace halley::attention
