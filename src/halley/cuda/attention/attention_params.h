// Parameters of the attention kernels: sizes, strides and device pointers.
#pragma once

#include <cstddef>
#include <cstdint>

#include <vector_types.h>

#include "halley/cuda/attention/attention_items.h"

namespace halley::attention {

/// The pages of one layer: KvPageLayout with its offsets computed.
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
  /// The 16 positions from each multiple of 16 on are contiguous in a page, aligned to 16 bytes and
  /// without padding between rows: the kernels may copy them as one run.
  bool is_bulk = false;
};

/// q, out: [M, H * D] row-major f16 or bf16.
struct Activations {
  const std::byte* q = nullptr;
  std::byte* out = nullptr;
  int64_t q_stride = 0, out_stride = 0;  // elements
  bool q_is_bf16 = false, out_is_bf16 = false;
};

/// scores = scale * q.k, capped where soft_cap > 0, in units of log2.
struct ScoreRule {
  float scale = 0;     // factor of q.k; times log2(e) where there is no cap
  float soft_cap = 0;  // 0: none
  int window = 0;      // 0: none
};

/// Counters in device memory. The host sets num_items; the others are 0 between launches.
struct DecodeHeader {
  uint32_t num_items = 0;
  uint32_t next_work = 0;  // next work item that a team of warps takes
  uint32_t num_teams_done = 0;
  uint32_t unused = 0;
};

struct DecodeParams {
  PagedRows rows;
  Activations activations;
  ScoreRule rule;
  DecodeHeader* header = nullptr;
  const DecodeItem* items = nullptr;
  uint32_t num_items_max = 0;  // capacity of `items`, >= 1
  const int32_t* tables = nullptr;
  uint32_t* num_arrived =
      nullptr;  // [sequences, units]: splits that have arrived; 0 between launches
  float* partial_values = nullptr;  // [partials, H, padded D] unnormalized O
  float2* partial_stats = nullptr;  // [partials, H]: row maximum, sum of exp2(score - maximum)
};

struct PrefillParams {
  PagedRows rows;
  Activations activations;
  ScoreRule rule;
  const PrefillItem* items = nullptr;
  int num_items = 0;
  const int32_t* tables = nullptr;
  /// Positions of one TMA box of the page map; 0: the pages have no map, and cp.async copies them.
  int box_tokens = 0;
  int value_groups = 0;  // from a key to its value, in groups of eight rows
};

}  // namespace halley::attention
