// Copies of one tile of keys and values from pages to a pipeline stage in shared memory.
//
// A run is 16 positions that are contiguous in a page. There are three kinds of copies. 16-bit
// caches copy a run's keys by one cp.async.bulk and its values by another, unswizzled. Quantized
// caches, which are bound by their warps' instructions, use cp.async of 16 bytes: it can swizzle
// the 16-byte chunks of a row against bank conflicts, and a warp issues it for 32 chunks at once,
// bulk copies one by one. Pages without runs are copied row by row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/operand.cuh"
#include "halley/cuda/attention/paged_copies.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"

namespace halley::attention {

inline constexpr int kRunTokens = 16;

/// The warp's tiles of one work item: t, t + n, ... up to the item's end for a team of n warps.
/// Tile t of a sequence belongs to warp t % n, whatever the item's first tile is.
template <typename Shape>
struct DecodeTiles {
  int position = 0;        // first position of the next tile
  int begin = 0, end = 0;  // of the item

  static constexpr int kNumWarps = Shape::Team::kNumWarps;  // a power of two

  DecodeTiles() = default;
  explicit __device__ DecodeTiles(const DecodeItem& item) : begin(item.begin), end(item.end) {
    const int first = begin / Shape::kTokens;
    position = (first + ((Shape::Team::warp() - first) & (kNumWarps - 1))) * Shape::kTokens;
  }
  __device__ bool has_tile() const { return position < end; }
  __device__ void advance() { position += kNumWarps * Shape::kTokens; }
  /// The kernel queued before this one writes the newest token of a sequence.
  __device__ bool is_last_tile() const { return position + Shape::kTokens >= end; }
  /// Whether a token of the tile's run at `run` belongs to the item.
  __device__ bool needs_run(int run) const {
    return position + run < end && position + run + kRunTokens > begin;
  }
};

/// Source of all copies of a work item.
struct CopySource {
  const PagedRows& rows;
  const int32_t* table = nullptr;  // page table of the sequence
  int kv_head = 0;
  int page_shift = 0;  // a page has 2^page_shift positions where there are runs

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  /// Row of the position in its page, for this kv head.
  __device__ int row_of(int position) const {
    return kv_head * rows.page_tokens + (position & (rows.page_tokens - 1));
  }
};

/// cp.async.bulk: each lane copies one run.
template <typename Shape>
struct BulkCopyRuns {
  using Rows = typename Shape::Rows;
  static constexpr int kRuns = Shape::kTokens / kRunTokens;
  static constexpr int kRunBytes = kRunTokens * Rows::kRowBytes;
  static constexpr int kNumArrivals = 1;  // of a stage's mbarrier

  int page = 0;  // of the lane's run in the next tile

  static __device__ int own_run() { return CopySource::lane() % kRuns * kRunTokens; }
  static __device__ bool needs_own(const DecodeTiles<Shape>& tile) {
    return CopySource::lane() < 2 * kRuns && tile.needs_run(own_run());
  }
  /// Looks the page up one tile ahead, so that the copy does not wait for the load.
  __device__ void look_up(const CopySource& source, const DecodeTiles<Shape>& tile) {
    page = needs_own(tile) ? source.table[(tile.position + own_run()) >> source.page_shift] : 0;
  }
  __device__ void start(const CopySource& source, const DecodeTiles<Shape>& tile, uint32_t to,
                        uint32_t barrier) const {
    const int lane = CopySource::lane();
    if (lane == 0) {
      const int first = max(tile.begin, tile.position) / kRunTokens;
      const int end = (min(tile.end, tile.position + Shape::kTokens) - 1) / kRunTokens + 1;
      ptx::mbarrier_arrive_expect_tx(barrier, (end - first) * 2 * kRunBytes);
    }
    __syncwarp();
    if (!needs_own(tile)) return;
    const bool is_value = lane >= kRuns;
    const int row = source.row_of(tile.position + own_run());
    const std::byte* from = source.rows.pages + page * source.rows.page_bytes +
                            (is_value ? source.rows.value_bytes : 0) + row * Rows::kRowBytes;
    const uint32_t at = to + (is_value ? Shape::kValues : 0) + own_run() * Rows::kRowBytes;
    ptx::cp_async_bulk(at, from, kRunBytes, barrier);
  }
};

/// cp.async of 16 bytes a lane: a pass of the warp copies 512 bytes.
template <typename Shape>
struct CpAsyncRuns {
  using Rows = typename Shape::Rows;
  static constexpr int kRuns = Shape::kTokens / kRunTokens;
  static constexpr int kPassesOfRun = kRunTokens * Rows::kRowBytes / 512;
  static constexpr int kLanesOfRow = Rows::kRowBytes / 16;
  static constexpr int kNumArrivals = 32;

  int pages[kRuns];  // of the next tile's runs; -1: none

  __device__ void look_up(const CopySource& source, const DecodeTiles<Shape>& tile) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const int at = run * kRunTokens;
      pages[run] =
          tile.needs_run(at) ? source.table[(tile.position + at) >> source.page_shift] : -1;
    }
  }
  __device__ void start(const CopySource& source, const DecodeTiles<Shape>& tile, uint32_t to,
                        uint32_t barrier) const {
    const PagedRows& rows = source.rows;
    const int lane = CopySource::lane();
    const uint32_t own_row = to + lane / kLanesOfRow * Rows::kRowBytes;
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const bool is_needed = pages[run] >= 0;
      const int row = source.row_of(tile.position + run * kRunTokens);
      const std::byte* page = rows.pages + max(pages[run], 0) * rows.page_bytes;
      const std::byte* from = page + row * Rows::kRowBytes + 16 * lane;
#pragma unroll
      for (int i = 0; i < kPassesOfRun; ++i) {
        const int pass = run * kPassesOfRun + i;
        const int chunk = lane % kLanesOfRow ^ Shape::swizzle_of_pass(pass);
        const uint32_t at = own_row + 512 * pass + 16 * chunk;
        cp_async<16>(at, from + 512 * i, is_needed);
        cp_async<16>(at + Shape::kValues, from + rows.value_bytes + 512 * i, is_needed);
      }
      if (lane < 8) {  // a lane copies four scales of keys, or of values
        const bool is_value = lane >= 4;
        const std::byte* scales = page + rows.scale_bytes + 4 * row + 16 * (lane % 4) +
                                  (is_value ? rows.value_scale_bytes : 0);
        const int at = (is_value ? Shape::kValueScales : Shape::kKeyScales) + 4 * run * kRunTokens;
        cp_async<16>(to + at + 16 * (lane % 4), scales, is_needed);
      }
    }
    ptx::cp_async_mbarrier_arrive_noinc(barrier);
  }
};

/// Shared-memory offsets of rows that are copied one by one.
template <typename Shape>
struct StageLayout {
  using Rows = typename Shape::Rows;
  static constexpr int kTokens = min_of(32, Shape::kTokens);
  static __device__ int key(int row, int byte) {
    return row * Rows::kRowBytes + (byte ^ 16 * Shape::swizzle_of_token(row));
  }
  static __device__ int value(int row, int byte) { return Shape::kValues + key(row, byte); }
  static __device__ int key_scale(int row) { return Shape::kKeyScales + 4 * row; }
  static __device__ int value_scale(int row) { return Shape::kValueScales + 4 * row; }
};

/// Copies the tile's rows one by one. Not inlined: most caches do not use it, and it is large.
template <typename Shape>
__device__ __noinline__ void copy_rows(const CopySource& source, DecodeTiles<Shape> tile,
                                       uint32_t to, uint32_t barrier) {
  using Layout = StageLayout<Shape>;
  const PagedCopies<Layout> copies{source.rows, source.table, tile.begin, tile.end, source.kv_head};
  for (int row = 0; row < Shape::kTokens; row += Layout::kTokens) {
    const int position = tile.position + row;
    copies.start(position, copies.page_of(position), to, row);
  }
  ptx::cp_async_mbarrier_arrive_noinc(barrier);
}

}  // namespace halley::attention
