// What the attention kernels are given; plain numbers and device addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include <vector_types.h>

#include "halley/cuda/attention/attention_items.h"

namespace halley::attention {

/// The pages of one layer, KvPageLayout with its offsets computed.
struct PagedRows {
  const std::byte* pages = nullptr;
  int64_t page_bytes = 0;
  int64_t value_bytes = 0;        // from a token's key to its value
  int64_t scale_bytes = 0;        // from a page's start to its first key scale
  int64_t value_scale_bytes = 0;  // from a key's scale to the value's
  int row_bytes = 0;
  int page_tokens = 0;
  int copy_bytes = 0;  // 16, 8 or 4
  int head_dim = 0;
  int num_kv_heads = 0;
  int group_size = 0;  // query heads of a kv head
  /// 16 positions from a multiple of 16 on are next to each other, aligned to 16 bytes, with no gap
  /// between what kernels see as rows.
  bool is_bulk = false;
};

/// q and out: rows of heads; 16-bit elements.
struct Activations {
  const std::byte* q = nullptr;
  std::byte* out = nullptr;
  int64_t q_stride = 0, out_stride = 0;  // elements
  bool q_is_bf16 = false, out_is_bf16 = false;
};

/// Scores are capped (where soft_cap > 0) and then in units of log2.
struct ScoreRule {
  float scale = 0;     // of q.k; times log2(e) where there is no cap
  float soft_cap = 0;  // 0: none
  int window = 0;      // 0: none
};

/// Counts in device memory. The host sets num_items; the others are 0 between launches.
struct DecodeHeader {
  uint32_t num_items = 0;
  uint32_t next_work = 0;  // taken by blocks
  uint32_t num_blocks_done = 0;
  uint32_t unused = 0;
};

struct DecodeParams {
  PagedRows rows;
  Activations activations;
  ScoreRule rule;
  DecodeHeader* header = nullptr;
  const DecodeItem* items = nullptr;
  uint32_t num_items_max = 0;  // that there is memory for, >= 1
  const int32_t* tables = nullptr;
  uint32_t* num_arrived = nullptr;  // [sequences, units]; 0 between launches
  float* partial_values = nullptr;  // [partials, H, padded head size]
  float2* partial_stats = nullptr;  // [partials, H]: largest score, sum of weights
};

struct PrefillParams {
  PagedRows rows;
  Activations activations;
  ScoreRule rule;
  const PrefillItem* items = nullptr;
  int num_items = 0;
  const int32_t* tables = nullptr;
  /// Positions that the copy engine brings at a time, by a map of the pages; 0: there is no map.
  int box_tokens = 0;
  int value_groups = 0;  // from a key to its value, in groups of eight rows
};

}  // namespace halley::attention
