// How tiles of keys and values come from pages to a stage of shared memory.
//
// Three ways. Where 16 positions are next to each other in a page ("runs"), 16-bit caches use one
// bulk copy for the keys of a run and one for its values, which keep their order. Quantized caches,
// which are bound by what their warps do, use copies of 16 bytes, which exchange chunks of rows so
// that they are read without conflicts of banks; a warp starts these all at once, bulk copies one
// by one. All other pages are copied row by row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/decode_instructions.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/paged_copies.cuh"

namespace halley::attention {

inline constexpr int kRunTokens = 16;

/// The warp's tiles of one piece: t, t + kDecodeWarps, ... up to the piece's end. Tile t of a
/// sequence belongs to warp t % kDecodeWarps, whatever the piece's first tile is.
template <typename Shape>
struct DecodeTiles {
  int position = 0;        // of the next tile
  int begin = 0, end = 0;  // of the piece

  DecodeTiles() = default;
  __device__ DecodeTiles(const DecodeItem& item, int warp) : begin(item.begin), end(item.end) {
    const int first = begin / Shape::kTokens;
    position =
        (first + (warp - first % kDecodeWarps + kDecodeWarps) % kDecodeWarps) * Shape::kTokens;
  }
  __device__ bool has_tile() const { return position < end; }
  __device__ void advance() { position += kDecodeWarps * Shape::kTokens; }
  /// The newest token of a sequence is written by the kernel ahead.
  __device__ bool is_last_tile() const { return position + Shape::kTokens >= end; }
  /// Whether a token of the tile's run at `run` belongs to the piece.
  __device__ bool needs_run(int run) const {
    return position + run < end && position + run + kRunTokens > begin;
  }
};

/// What all copies of a piece have in common.
struct CopySource {
  const PagedRows& rows;
  const int32_t* table = nullptr;  // the sequence's
  int kv_head = 0;
  int page_shift = 0;  // 2^page_shift positions are a page, where there are runs

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  /// Among the rows of a page, of the position's in this kv head.
  __device__ int row_of(int position) const {
    return kv_head * rows.page_tokens + (position & (rows.page_tokens - 1));
  }
};

/// Bulk copies, one of a lane.
template <typename Shape>
struct BulkRuns {
  using Rows = typename Shape::Rows;
  static constexpr int kRuns = Shape::kTokens / kRunTokens;
  static constexpr int kRunBytes = kRunTokens * Rows::kRowBytes;
  static constexpr int kNumArrivals = 1;  // of a barrier

  int page = 0;  // of the lane's run of the next tile

  static __device__ int own_run() { return CopySource::lane() % kRuns * kRunTokens; }
  static __device__ bool needs_own(const DecodeTiles<Shape>& tile) {
    return CopySource::lane() < 2 * kRuns && tile.needs_run(own_run());
  }
  /// Ahead of the copy, which would wait for it.
  __device__ void look_up(const CopySource& source, const DecodeTiles<Shape>& tile) {
    page = needs_own(tile) ? source.table[(tile.position + own_run()) >> source.page_shift] : 0;
  }
  __device__ void start(const CopySource& source, const DecodeTiles<Shape>& tile, uint32_t to,
                        uint32_t barrier) const {
    const int lane = CopySource::lane();
    if (lane == 0) {
      const int first = max(tile.begin, tile.position) / kRunTokens;
      const int end = (min(tile.end, tile.position + Shape::kTokens) - 1) / kRunTokens + 1;
      arrive_and_expect(barrier, (end - first) * 2 * kRunBytes);
    }
    __syncwarp();
    if (!needs_own(tile)) return;
    const bool is_value = lane >= kRuns;
    const int row = source.row_of(tile.position + own_run());
    const std::byte* from = source.rows.pages + page * source.rows.page_bytes +
                            (is_value ? source.rows.value_bytes : 0) + row * Rows::kRowBytes;
    const uint32_t at = to + (is_value ? Shape::kValues : 0) + own_run() * Rows::kRowBytes;
    start_bulk_copy(at, from, kRunBytes, barrier);
  }
};

/// Copies of 16 bytes, 512 at a time of a warp ("pass").
template <typename Shape>
struct ChunkRuns {
  using Rows = typename Shape::Rows;
  static constexpr int kRuns = Shape::kTokens / kRunTokens;
  static constexpr int kPassesOfRun = kRunTokens * Rows::kRowBytes / 512;
  static constexpr int kLanesOfRow = Rows::kRowBytes / 16;
  static constexpr int kNumArrivals = 32;

  int pages[kRuns];  // of the next tile; -1: none

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
        const int chunk = lane % kLanesOfRow ^ Shape::exchange_of_pass(pass);
        const uint32_t at = own_row + 512 * pass + 16 * chunk;
        start_copy<16>(at, from + 512 * i, is_needed);
        start_copy<16>(at + Shape::kValues, from + rows.value_bytes + 512 * i, is_needed);
      }
      if (lane < 8) {  // four scales of keys, or of values
        const bool is_value = lane >= 4;
        const std::byte* scales = page + rows.scale_bytes + 4 * row + 16 * (lane % 4) +
                                  (is_value ? rows.value_scale_bytes : 0);
        const int at = (is_value ? Shape::kValueScales : Shape::kKeyScales) + 4 * run * kRunTokens;
        start_copy<16>(to + at + 16 * (lane % 4), scales, is_needed);
      }
    }
    arrive_after_copies(barrier);
  }
};

/// Where rows go that are copied one by one.
template <typename Shape>
struct StageLayout {
  using Rows = typename Shape::Rows;
  static constexpr int kTokens = min_of(32, Shape::kTokens);
  static __device__ int key(int row, int byte) {
    return row * Rows::kRowBytes + (byte ^ 16 * Shape::exchange_of_token(row));
  }
  static __device__ int value(int row, int byte) { return Shape::kValues + key(row, byte); }
  static __device__ int key_scale(int row) { return Shape::kKeyScales + 4 * row; }
  static __device__ int value_scale(int row) { return Shape::kValueScales + 4 * row; }
};

/// The tile's rows one by one. Not inlined: of no use to most caches, and large.
template <typename Shape>
__device__ __noinline__ void copy_rows(const CopySource& source, DecodeTiles<Shape> tile,
                                       uint32_t to, uint32_t barrier) {
  using Layout = StageLayout<Shape>;
  const PagedCopies<Layout> copies{source.rows, source.table, tile.begin, tile.end, source.kv_head};
  for (int row = 0; row < Shape::kTokens; row += Layout::kTokens) {
    const int position = tile.position + row;
    copies.start(position, copies.page_of(position), to, row);
  }
  arrive_after_copies(barrier);
}

}  // namespace halley::attention
