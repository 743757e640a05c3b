// Producer warps of the prefill kernel for 16-bit caches: they copy keys and values of the CTA's
// work tiles, tile by tile, to the swizzled stages that wgmma reads.
//
// Keys run one tile ahead of values, in the order in which consumers use them. Rows of a tile that
// are no positions of the work tile are zeros in values, since a weight of 0 times NaN is NaN; in
// keys they may be anything, since their scores are masked.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#include "halley/cuda/attention/operand.cuh"
#include "halley/cuda/attention/prefill_mover.cuh"
#include "halley/cuda/attention/prefill_shape.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"

namespace halley::attention {

/// TMA producer: one warp, each lane loads a box of params.box_tokens positions of a page.
template <typename Shape>
struct TmaProducer {
  const PrefillParams& params;
  const CUtensorMap& map;
  PrefillMemory<Shape> memory;
  ptx::PipelineState key_state = {}, value_state = {};
  uint32_t arrived_phase = 0;
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

  /// Loads keys, or the values, which are `group_offset` groups of eight rows further.
  __device__ void start_copies(int tile, int page, int group_offset, uint32_t to,
                               uint32_t barrier) const {
    const bool needed = is_needed(tile);
    const int num_boxes = __popc(__ballot_sync(0xFFFFFFFFu, needed));
    if (lane() == 0) {
      ptx::mbarrier_arrive_expect_tx(barrier, num_boxes * params.box_tokens * Shape::kRowBytes);
    }
    __syncwarp();
    if (needed) {
      const int slot = (tile * Shape::kTokens + first_row()) % params.rows.page_tokens;
      const int row = work.kv_head * params.rows.page_tokens + slot;
      ptx::cp_async_bulk_tensor_5d(to + first_row() * Shape::kRowBytes, &map,
                                   {row / 8 + group_offset, page}, barrier);
    }
  }

  __device__ void copy_keys(int tile, int page) {
    mbarrier_wait(memory.empty_keys(key_state.index), key_state.parity ^ 1u);
    __syncwarp();
    start_copies(tile, page, 0, memory.keys(key_state.index), memory.full_keys(key_state.index));
    key_state.advance(Shape::kStages);
  }

  __device__ void copy_values(int tile, int page) {
    const int stage = value_state.index;
    mbarrier_wait(memory.empty_values(stage), value_state.parity ^ 1u);
    __syncwarp();
    const int begin = tile * Shape::kTokens;
    const bool is_whole = begin >= work.item.begin && begin + Shape::kTokens <= work.item.end;
    const uint32_t full = memory.full_values(stage);
    start_copies(tile, page, params.value_groups, memory.values(stage),
                 is_whole ? full : memory.arrived());
    if (!is_whole) {
      mbarrier_wait(memory.arrived(), arrived_phase);
      arrived_phase ^= 1u;
      clear_other_rows(begin, memory.values(stage));
      ptx::fence_proxy_async_shared();
      __syncwarp();
      if (lane() == 0) ptx::mbarrier_arrive(full);
    }
    value_state.advance(Shape::kStages);
  }

  __device__ void clear_other_rows(int begin, uint32_t tile) const {
    constexpr int kChunks = Shape::kRowBytes / 16;
    for (int i = lane(); i < Shape::kTokens * kChunks; i += 32) {
      const int row = i / kChunks;
      if (work.is_position(begin + row)) continue;
      ptx::st_shared_b32x4(tile + panel_offset(Shape::kPanels, row, i % kChunks * 16),
                           make_uint4(0, 0, 0, 0));
    }
  }

  __device__ void run() {
    const PrefillSchedule schedule{params};
    for (uint32_t round = 0; schedule.get(round, work); ++round) {
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

/// cp.async producer: one of four warps that copy 16 bytes a lane, for pages of any size. A warp
/// has positions [kWarpRows * w, ...) of each tile. It moves queries and outputs too.
template <typename Shape>
struct CpAsyncProducer {
  static constexpr int kChunks = Shape::kRowBytes / 16;  // of a row
  static constexpr int kRowsPerPass = 32 / kChunks;
  static constexpr int kWarpRows = Shape::kTokens / kProducerWarps;

  const PrefillParams& params;
  PrefillMemory<Shape> memory;
  ptx::PipelineState key_state = {}, value_state = {};
  PrefillWork work = {};
  uint32_t pending = 0;  // full barrier of the copies in flight

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
  /// Key of the lane's position; an arbitrary key if there is none.
  __device__ const std::byte* row_of(int tile, int page) const {
    const int token = token_of(tile);
    const int slot = work.is_position(token) ? token % params.rows.page_tokens : 0;
    const int64_t row = static_cast<int64_t>(work.kv_head) * params.rows.page_tokens + slot;
    return params.rows.pages + page * params.rows.page_bytes + row * params.rows.row_bytes;
  }

  /// Copies keys or values of a tile, zeros for rows that are no positions; `full` is signalled
  /// later.
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
        cp_async<16>(
            to + panel_offset(Shape::kPanels, first_row() + pass * kRowsPerPass + row, byte), from,
            (valid >> (pass * kRowsPerPass) & 1u) != 0);
      }
    }
    ptx::cp_async_commit_group();
    if (pending != 0) signal_full<1>();
    pending = full;
  }

  /// Producer acquire: waits for the consumers, and first signals the copies that they may wait
  /// for.
  __device__ void wait_for_empty(uint32_t empty, uint32_t parity) {
    if (pending != 0 && !__all_sync(0xFFFFFFFFu, ptx::mbarrier_test_wait_parity(empty, parity))) {
      signal_full<0>();
      pending = 0;
    }
    mbarrier_wait(empty, parity);
    __syncwarp();
  }

  /// Waits for all but the newest kNumLeft groups, makes them visible to wgmma, and signals full.
  template <int kNumLeft>
  __device__ void signal_full() {
    ptx::cp_async_wait_group<kNumLeft>();
    ptx::fence_proxy_async_shared();
    ptx::mbarrier_arrive(pending);
  }

  __device__ void copy_keys(const std::byte* own_row, int tile) {
    wait_for_empty(memory.empty_keys(key_state.index), key_state.parity ^ 1u);
    copy(own_row, tile, memory.keys(key_state.index), memory.full_keys(key_state.index));
    key_state.advance(Shape::kStages);
  }
  __device__ void copy_values(const std::byte* own_row, int tile) {
    wait_for_empty(memory.empty_values(value_state.index), value_state.parity ^ 1u);
    copy(own_row + params.rows.value_bytes, tile, memory.values(value_state.index),
         memory.full_values(value_state.index));
    value_state.advance(Shape::kStages);
  }

  __device__ void run() {
    RowMover<Shape> mover{params, memory, static_cast<int>(threadIdx.x % 128 / 32), kProducerWarps};
    const PrefillSchedule schedule{params};
    for (uint32_t round = 0; mover.next(); ++round) {
      schedule.get(round, work);
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
      signal_full<0>();
      pending = 0;
    }
    mover.finish();
  }
};

}  // namespace halley::attention
