// The pieces of work that attention kernels read.
#pragma once

#include <cstdint>

namespace halley {

/// Query rows (heads of a kv head; for prefill also tokens) of one tensor-core tile.
inline constexpr int kTileRows = 16;
/// No row is cut into more splits: combining them stays short, and their sizes fit shared memory.
inline constexpr int64_t kNumSplitsMax = 64;

/// One split of one sequence's newest token, read by the kernel; it is done once for each kv head
/// and each block of kTileRows query heads. Positions [begin, end).
struct DecodeItem {
  int32_t row = 0;          // of q and out
  int32_t table_begin = 0;  // of the sequence's page table, in elements of the tables' array
  int32_t begin = 0, end = 0;
  int32_t split = 0;  // of num_splits, ascending positions
  int32_t num_splits = 0;
  int32_t first_partial = 0;  // of the sequence's splits, where there is more than one
  int32_t sequence = 0;       // counts the splits that have arrived
};
static_assert(sizeof(DecodeItem) == 32);

/// Some consecutive query rows of one sequence's new tokens; done once for each kv head. Row r is
/// head r % G of new token r / G.
struct PrefillItem {
  int32_t first_row = 0;    // of q and out: the sequence's first new token
  int32_t table_begin = 0;  // as above
  int32_t num_past_tokens = 0;
  int32_t num_new_tokens = 0;
  int32_t query_begin = 0;  // first query row
  int32_t begin = 0;        // first position that a row of the item sees
  int32_t end = 0;          // one behind the last
  int32_t unused = 0;
};
static_assert(sizeof(PrefillItem) == 32);

/// Padded head size of the kernel that serves `head_dim` <= 256: 64, 128 or 256.
constexpr int padded_head_dim(int64_t head_dim) {
  if (head_dim <= 64) return 64;
  return head_dim <= 128 ? 128 : 256;
}

/// Query rows of a PrefillItem: what one block of the kernel computes at a time.
inline constexpr int kPrefillRows = 128;

}  // namespace halley
