// The work items that the attention kernels read: splits of decodes and query tiles of prefills.
#pragma once

#include <cstdint>

namespace halley {

/// Split-KV makes at most this many splits of a row, so that the combine is short and its factors
/// fit shared memory.
inline constexpr int64_t kNumSplitsMax = 64;

/// Warps of a CTA of the decode kernel.
inline constexpr int kDecodeWarps = 4;

/// One split of the newest token of one sequence: KV positions [begin, end). The kernel runs the
/// item once for each kv head and each tile of its query heads.
struct DecodeItem {
  int32_t row = 0;          // row of q and out
  int32_t table_begin = 0;  // start of the sequence's page table in `tables`, in elements
  int32_t begin = 0, end = 0;
  int32_t split = 0;  // index among num_splits; splits ascend in position
  int32_t num_splits = 0;
  int32_t first_partial = 0;  // index of the sequence's first partial result where num_splits > 1
  int32_t sequence = 0;       // index into the counts of arrived splits
};
static_assert(sizeof(DecodeItem) == 32);

/// One query tile of one sequence's new tokens. The kernel runs the item once for each kv head. Row
/// r of the tile is head r % G of new token r / G.
struct PrefillItem {
  int32_t first_row = 0;    // row of q and out that holds the sequence's first new token
  int32_t table_begin = 0;  // as in DecodeItem
  int32_t num_past_tokens = 0;
  int32_t num_new_tokens = 0;
  int32_t query_begin = 0;  // first query row
  int32_t begin = 0;        // first position that some row of the tile attends to
  int32_t end = 0;          // one past the last such position
  int32_t unused = 0;
};
static_assert(sizeof(PrefillItem) == 32);

/// The kernel that serves `head_dim` <= 256 has this padded head size: 64, 128 or 256.
constexpr int padded_head_dim(int64_t head_dim) {
  if (head_dim <= 64) return 64;
  return head_dim <= 128 ? 128 : 256;
}

/// Query rows of a PrefillItem: the query tile of one CTA.
inline constexpr int kPrefillRows = 128;

}  // namespace halley
