// Producers of the prefill kernel for caches of 16-bit types: they copy keys and values of the
// block's works, tile by tile, to where the tensor cores read them.
//
// Keys are copied one tile ahead of values, as consumers use them. Rows of a tile that are no
// positions of the work are zeros in values, since weights of 0 must not meet what is not a number;
// in keys they may be anything, since their scores are not looked at.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#include "halley/cuda/attention/prefill_mover.cuh"
#include "halley/cuda/attention/prefill_shape.cuh"
#include "halley/cuda/attention/wgmma_instructions.cuh"

namespace halley::attention {

/// One warp that has the copy engine do it: a lane's box is params.box_tokens positions of a page.
template <typename Shape>
struct BoxProducer {
  const PrefillParams& params;
  const CUtensorMap& map;
  PrefillMemory<Shape> memory;
  RingPlace<Shape::kStages> place_of_keys = {}, place_of_values = {};
  uint32_t arrived_parity = 0;
  PrefillWork work = {};

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  /// The lane's first position in a tile.
  __device__ int first_row() const { return lane() * params.box_tokens; }
  __device__ bool is_needed(int tile) const {
    const int token = tile * Shape::kTokens + first_row();
    return first_row() < Shape::kTokens && token < work.item.end &&
           token + params.box_tokens > work.item.begin;
  }
  __device__ int page_of(int tile) const {
    const int token = tile * Shape::kTokens + first_row();
    return is_needed(tile) ? params.tables[work.item.table_begin + token / params.rows.page_tokens]
                           : 0;
  }

  /// Keys, or values, which are `group_offset` groups of eight rows behind.
  __device__ void start_copies(int tile, int page, int group_offset, uint32_t to,
                               uint32_t barrier) const {
    const bool needed = is_needed(tile);
    const int num_boxes = __popc(__ballot_sync(0xFFFFFFFFu, needed));
    if (lane() == 0) {
      arrive_and_expect(barrier, num_boxes * params.box_tokens * Shape::kRowBytes);
    }
    __syncwarp();
    if (needed) {
      const int slot = (tile * Shape::kTokens + first_row()) % params.rows.page_tokens;
      const int row = work.kv_head * params.rows.page_tokens + slot;
      start_box_copy(to + first_row() * Shape::kRowBytes, &map, row / 8 + group_offset, page,
                     barrier);
    }
  }

  __device__ void copy_keys(int tile, int page) {
    wait_for_barrier(memory.empty_keys(place_of_keys.stage), place_of_keys.parity ^ 1u);
    __syncwarp();
    start_copies(tile, page, 0, memory.keys(place_of_keys.stage),
                 memory.full_keys(place_of_keys.stage));
    place_of_keys.advance();
  }

  __device__ void copy_values(int tile, int page) {
    const int stage = place_of_values.stage;
    wait_for_barrier(memory.empty_values(stage), place_of_values.parity ^ 1u);
    __syncwarp();
    const int begin = tile * Shape::kTokens;
    const bool is_whole = begin >= work.item.begin && begin + Shape::kTokens <= work.item.end;
    const uint32_t full = memory.full_values(stage);
    start_copies(tile, page, params.value_groups, memory.values(stage),
                 is_whole ? full : memory.arrived());
    if (!is_whole) {
      wait_for_barrier(memory.arrived(), arrived_parity);
      arrived_parity ^= 1u;
      clear_other_rows(begin, memory.values(stage));
      fence_shared_for_async();
      __syncwarp();
      if (lane() == 0) arrive(full);
    }
    place_of_values.advance();
  }

  __device__ void clear_other_rows(int begin, uint32_t tile) const {
    constexpr int kChunks = Shape::kRowBytes / 16;
    for (int i = lane(); i < Shape::kTokens * kChunks; i += 32) {
      const int row = i / kChunks;
      if (work.is_position(begin + row)) continue;
      store_shared_quad(tile + panel_offset(Shape::kPanels, row, i % kChunks * 16),
                        make_uint4(0, 0, 0, 0));
    }
  }

  __device__ void run() {
    const PrefillTurns turns{params};
    for (uint32_t turn = 0; turns.get(turn, work); ++turn) {
      const PrefillTiles<Shape> tiles(work.item);
      int page = page_of(tiles.begin), previous = 0;
      for (int tile = tiles.begin; tile < tiles.end; ++tile) {
        const int own = page;
        page = page_of(tile + 1);
        copy_keys(tile, own);
        if (tile > tiles.begin) copy_values(tile - 1, previous);
        previous = own;
      }
      copy_values(tiles.end - 1, previous);
    }
  }
};

/// One of four warps that copy 16 bytes a lane, for pages of any size: positions [kWarpRows * w,
/// ...) of each tile. They move queries and outputs too.
template <typename Shape>
struct RowProducer {
  static constexpr int kChunks = Shape::kRowBytes / 16;  // of a row
  static constexpr int kRowsPerPass = 32 / kChunks;
  static constexpr int kWarpRows = Shape::kTokens / kProducerWarps;

  const PrefillParams& params;
  PrefillMemory<Shape> memory;
  RingPlace<Shape::kStages> place_of_keys = {}, place_of_values = {};
  PrefillWork work = {};
  uint32_t pending = 0;  // barrier of copies that are in flight

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int first_row() { return static_cast<int>(threadIdx.x % 128 / 32) * kWarpRows; }

  __device__ int token_of(int tile) const {
    return tile * Shape::kTokens + first_row() + lane() % kWarpRows;
  }
  __device__ int page_of(int tile) const {
    const int token = token_of(tile);
    return work.is_position(token)
               ? params.tables[work.item.table_begin + token / params.rows.page_tokens]
               : 0;
  }
  /// The key of the lane's position; any key where there is none.
  __device__ const std::byte* row_of(int tile, int page) const {
    const int token = token_of(tile);
    const int slot = work.is_position(token) ? token % params.rows.page_tokens : 0;
    const int64_t row = static_cast<int64_t>(work.kv_head) * params.rows.page_tokens + slot;
    return params.rows.pages + page * params.rows.page_bytes + row * params.rows.row_bytes;
  }

  /// Keys or values of a tile, zeros where is_position() is not; `full` is told later.
  __device__ void copy(const std::byte* own_row, int tile, uint32_t to, uint32_t full) {
    const int row = lane() / kChunks, byte = lane() % kChunks * 16;  // of the first pass
    const uint32_t valid = __ballot_sync(0xFFFFFFFFu, work.is_position(token_of(tile))) >> row;
    const bool has_byte = byte < params.rows.row_bytes;
#pragma unroll 4
    for (int pass = 0; pass < kWarpRows / kRowsPerPass; ++pass) {
      const auto address = __shfl_sync(
          0xFFFFFFFFu, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(own_row)),
          row + pass * kRowsPerPass);
      const auto* from = reinterpret_cast<const std::byte*>(static_cast<uintptr_t>(address)) + byte;
      if (has_byte) {
        start_copy<16>(
            to + panel_offset(Shape::kPanels, first_row() + pass * kRowsPerPass + row, byte), from,
            (valid >> (pass * kRowsPerPass) & 1u) != 0);
      }
    }
    close_copy_group();
    if (pending != 0) tell<1>();
    pending = full;
  }

  /// Waits for the consumers; tells them first what they may be waiting for.
  __device__ void wait_for_empty(uint32_t empty, uint32_t parity) {
    if (pending != 0 && !__all_sync(0xFFFFFFFFu, is_complete_now(empty, parity))) {
      tell<0>();
      pending = 0;
    }
    wait_for_barrier(empty, parity);
    __syncwarp();
  }

  /// All but the newest kNumLeft tiles are there, for the tensor cores too.
  template <int kNumLeft>
  __device__ void tell() {
    wait_for_copies<kNumLeft>();
    fence_shared_for_async();
    arrive(pending);
  }

  __device__ void copy_keys(const std::byte* own_row, int tile) {
    wait_for_empty(memory.empty_keys(place_of_keys.stage), place_of_keys.parity ^ 1u);
    copy(own_row, tile, memory.keys(place_of_keys.stage), memory.full_keys(place_of_keys.stage));
    place_of_keys.advance();
  }
  __device__ void copy_values(const std::byte* own_row, int tile) {
    wait_for_empty(memory.empty_values(place_of_values.stage), place_of_values.parity ^ 1u);
    copy(own_row + params.rows.value_bytes, tile, memory.values(place_of_values.stage),
         memory.full_values(place_of_values.stage));
    place_of_values.advance();
  }

  __device__ void run() {
    RowMover<Shape> mover{params, memory, static_cast<int>(threadIdx.x % 128 / 32), kProducerWarps};
    const PrefillTurns turns{params};
    for (uint32_t turn = 0; mover.next(); ++turn) {
      turns.get(turn, work);
      const PrefillTiles<Shape> tiles(work.item);
      const std::byte* previous = nullptr;
      int page = page_of(tiles.begin);
      for (int tile = tiles.begin; tile < tiles.end; ++tile) {
        const std::byte* own_row = row_of(tile, page);
        page = page_of(tile + 1);
        copy_keys(own_row, tile);
        if (tile > tiles.begin) copy_values(previous, tile - 1);
        previous = own_row;
      }
      copy_values(previous, tiles.end - 1);
      tell<0>();
      pending = 0;
    }
    mover.finish();
  }
};

}  // namespace halley::attention
