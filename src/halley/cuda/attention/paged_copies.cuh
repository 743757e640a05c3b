// cp.async copies of key and value rows from pages to shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/attention/kv_fragments.cuh"

namespace halley::attention {

/// One warp copies consecutive positions of a sequence: keys and values of one kv head. Layout has
/// Rows, kTokens (16 or 32), and the shared-memory offsets of a row's bytes and scales.
template <typename Layout>
struct PagedCopies {
  using Rows = typename Layout::Rows;
  static constexpr int kLanesPerRow = Rows::kChunks;
  static constexpr int kRowsPerPass = 32 / kLanesPerRow;

  const PagedRows& rows;
  const int32_t* table;  // page table of the sequence
  int begin, end;        // positions that are copied; others are zero-filled
  int kv_head;

  __device__ int lane() const { return static_cast<int>(threadIdx.x % 32); }
  __device__ int token_of(int position) const { return position + lane() % Layout::kTokens; }

  /// Page of the lane's token, looked up ahead so that the copy does not wait for the load.
  __device__ int page_of(int position) const {
    const int token = token_of(position);
    return token >= begin && token < end ? table[token / rows.page_tokens] : 0;
  }

  /// Issues the copies of kTokens positions from `position` on to the rows from `first_row` on of
  /// `to`, a shared-memory address.
  __device__ void start(int position, int page_index, uint32_t to, int first_row) const {
    const int token = token_of(position);
    const bool is_valid = token >= begin && token < end;
    const int slot = is_valid ? token % rows.page_tokens : 0;
    const int64_t row_index = static_cast<int64_t>(kv_head) * rows.page_tokens + slot;
    const std::byte* page = rows.pages + page_index * rows.page_bytes;
    const std::byte* own_row = page + row_index * rows.row_bytes;
    if (rows.copy_bytes == 16) {
      copy_rows<16>(own_row, is_valid, to, first_row);
    } else if (rows.copy_bytes == 8) {
      copy_rows<8>(own_row, is_valid, to, first_row);
    } else {
      copy_rows<4>(own_row, is_valid, to, first_row);
    }
    if constexpr (Rows::kHasScales) {
      if (lane() < Layout::kTokens) {
        const std::byte* scale = page + rows.scale_bytes + 4 * row_index;
        const int row = first_row + lane();
        cp_async<4>(to + Layout::key_scale(row), scale, is_valid);
        cp_async<4>(to + Layout::value_scale(row), scale + rows.value_scale_bytes, is_valid);
      }
    }
  }

 private:
  template <int kBytes>
  __device__ void copy_rows(const std::byte* own_row, bool own_is_valid, uint32_t to,
                            int first_row) const {
    const uint32_t valid = __ballot_sync(0xFFFFFFFFu, own_is_valid);
    const int byte = lane() % kLanesPerRow * 16;
#pragma unroll
    for (int pass = 0; pass < Layout::kTokens / kRowsPerPass; ++pass) {
      const int row = pass * kRowsPerPass + lane() / kLanesPerRow;
      const auto address = __shfl_sync(
          0xFFFFFFFFu, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(own_row)), row);
      const auto* from = reinterpret_cast<const std::byte*>(static_cast<uintptr_t>(address)) + byte;
      const bool is_valid = (valid >> row & 1u) != 0;
      // 16 bytes of a row, fewer where the row ends before.
#pragma unroll
      for (int i = 0; i < 16; i += kBytes) {
        if (byte + i >= rows.row_bytes) continue;
        cp_async<kBytes>(to + Layout::key(first_row + row, byte) + i, from + i, is_valid);
        cp_async<kBytes>(to + Layout::value(first_row + row, byte) + i, from + rows.value_bytes + i,
                         is_valid);
      }
    }
  }
};

}  // namespace halley::attention
