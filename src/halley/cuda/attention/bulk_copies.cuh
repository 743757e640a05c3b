// Bulk copies of keys and values from pages to shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/attention/warp_instructions.cuh"

namespace halley::attention {

/// One warp's copies of consecutive positions of a sequence, keys and values of one kv head: one
/// copy for the rows of 16 positions, which are next to each other in a page. Requires
/// rows.is_bulk. Rows keep their order; those outside [begin, end) hold anything. Layout as for
/// PagedCopies.
template <typename Layout>
struct BulkCopies {
  using Rows = typename Layout::Rows;
  static constexpr int kRun = 16;
  static constexpr int kNumRuns = Layout::kTokens / kRun;
  static constexpr int kParts = Rows::kHasScales ? 4 : 2;  // keys, values, and their scales
  static constexpr int kRunBytes = kRun * (2 * Rows::kRowBytes + (Rows::kHasScales ? 8 : 0));

  const PagedRows& rows;
  const int32_t* table;  // the sequence's
  int begin, end;        // positions that are needed
  int kv_head;
  int page_shift;  // 2^page_shift positions are a page

  __device__ int lane() const { return static_cast<int>(threadIdx.x % 32); }
  __device__ bool is_needed(int run_position) const {
    return run_position + kRun > begin && run_position < end;
  }
  __device__ int own_run(int position) const { return position + lane() / kParts * kRun; }

  /// The lane's page; looked up ahead of the copy, which would wait for it.
  __device__ int page_of(int position) const {
    const int run = own_run(position);
    return lane() < kNumRuns * kParts && is_needed(run) ? table[run >> page_shift] : 0;
  }

  /// `position` is a multiple of kTokens. The warp is done with what the copies overwrite.
  __device__ void start(int position, int page_index, uint32_t to, uint32_t barrier) const {
    if (lane() == 0) {
      int num_runs = 0;
#pragma unroll
      for (int i = 0; i < kNumRuns; ++i) num_runs += is_needed(position + i * kRun) ? 1 : 0;
      arrive_and_expect(barrier, num_runs * kRunBytes);
    }
    __syncwarp();
    const int run = own_run(position);
    if (lane() < kNumRuns * kParts && is_needed(run)) {
      const int part = lane() % kParts;
      const bool is_value = part % 2 != 0;
      const int64_t row =
          static_cast<int64_t>(kv_head) * rows.page_tokens + (run & (rows.page_tokens - 1));
      const std::byte* page = rows.pages + page_index * rows.page_bytes;
      const int first_row = run - position;
      if (part < 2) {
        const std::byte* from = page + row * Rows::kRowBytes + (is_value ? rows.value_bytes : 0);
        const int at = is_value ? Layout::value(first_row, 0) : Layout::key(first_row, 0);
        start_bulk_copy(to + at, from, kRun * Rows::kRowBytes, barrier);
      } else {
        const std::byte* from =
            page + rows.scale_bytes + 4 * row + (is_value ? rows.value_scale_bytes : 0);
        const int at = is_value ? Layout::value_scale(first_row) : Layout::key_scale(first_row);
        start_bulk_copy(to + at, from, kRun * 4, barrier);
      }
    }
  }
};

}  // namespace halley::attention
