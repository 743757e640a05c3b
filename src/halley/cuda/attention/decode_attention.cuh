// Decode attention: one new token of each sequence, splits of sequences among
// blocks.
//
// A block takes (split, kv head) pairs until none is left. Its four warps take
// tiles of the split's positions in turn, each with its own ring of copies in
// flight, which goes on into the next pair: nothing in the loop waits for another
// warp, and the memory does not wait while sums are joined. The warps' sums are
// joined in ascending order of warps; where a sequence has several splits, the
// block that finishes the last of them joins all in ascending order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/decode_join.cuh"
#include "halley/cuda/attention/decode_ring.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/decode_warp.cuh"
#include "halley/cuda/runtime/pdl_launch.cuh"

namespace halley::attention {

/// A block's pieces of work, in the order in which it takes them: this one, and the next, into
/// which copies run ahead.
struct DecodeQueue {
  uint32_t index, next;  // of work; >= num_work: none
  uint32_t num_work;
  DecodeWork work, next_work;

  __device__ bool has_next() const { return next < num_work; }
};

/// Starts copies until all stages but one are taken or there are none left to start.
/// `before_wait`: the newest token of a sequence may not have been written yet.
template <typename Shape>
__device__ inline void fill_ring(DecodeRing<Shape>& ring, const DecodeQueue& queue, int warp,
                                 bool& is_ahead, bool before_wait) {
  while (ring.num_flying < Shape::kStages - 1) {
    if (!ring.tiles.has_tile()) {
      if (is_ahead || before_wait || !queue.has_next()) return;
      is_ahead = true;
      ring.enter(queue.next_work, warp);
      continue;
    }
    if (before_wait && ring.tiles.is_last_tile()) return;
    ring.start();
  }
}

/// Rows of heads that are shorter than the kernel's: what copies leave out must multiply to 0.
/// Joining has written to the free stage.
template <typename Shape>
__device__ inline void clear_stages(uint32_t begin, int num_bytes) {
  for (int i = 16 * static_cast<int>(threadIdx.x % 32); i < num_bytes; i += 16 * 32) {
    store_shared_quad(begin + static_cast<uint32_t>(i), make_uint4(0, 0, 0, 0));
  }
  __syncwarp();
}

template <KvDType kType, int kHeadDim, int kRows>
__global__ void __launch_bounds__(kDecodeThreads, (DecodeShape<kType, kHeadDim, kRows>::kBlocks))
    decode_kernel(const __grid_constant__ DecodeParams params) {
  using Shape = DecodeShape<kType, kHeadDim, kRows>;
  const int warp = static_cast<int>(threadIdx.x / 32);
  auto* note = reinterpret_cast<uint32_t*>(shared_memory() + Shape::kNoteBegin);
  const DecodeUnits units(params, kRows);
  const bool is_padded = params.rows.head_dim < kHeadDim;
  // The host has written pieces of work and tables, before any kernel of the step.
  DecodeQueue queue;
  queue.index = blockIdx.x;
  queue.next = queue.index + gridDim.x;
  queue.work = units.work(params, queue.index);
  queue.num_work = params.header->num_items * units.num_units;
  const bool takes_more = queue.num_work > 2 * gridDim.x;  // else each has two, and none counts
  const bool has_few = queue.num_work <= gridDim.x;        // each block has one, or none
  DecodeRing<Shape> ring(params, warp);
  if (ring.lane() == 0) {
    ring.init_barriers();
    publish_barriers();
  }
  if (is_padded) clear_stages<Shape>(ring.stage_at(0), Shape::kRingBytes);
  __syncwarp();
  bool is_ahead = false;
  if (queue.index < queue.num_work) {
    ring.enter(queue.work, warp);
    fill_ring(ring, queue, warp, is_ahead, true);
  }
  griddepcontrol_wait();
  // Then SMs are about equally full, and what the next kernel reads ahead comes in
  // while splits are joined here.
  if (has_few) griddepcontrol_launch_dependents();
  using Sums = DecodeWarp<Shape>;
  typename Sums::Queries queries;
  if (queue.index < queue.num_work) queries.load(params, queue.work);
  bool left_last = false;  // thread 0: the split before was the last of its sequence
  uint32_t index_before = 0;
  while (queue.index < queue.num_work) {
    uint32_t after_next = queue.num_work;
    if (takes_more && threadIdx.x == 0) {
      after_next = 2 * gridDim.x + atomicAdd(&params.header->next_work, 1u);
    }
    queue.next_work = units.work(params, queue.next);
    fill_ring(ring, queue, warp, is_ahead, false);
    Sums sums;
    sums.begin(queries, params.rule);
    const int begin = queue.work.item.begin, end = queue.work.item.end;
    for (DecodeTiles<Shape> tiles(queue.work.item, warp); tiles.has_tile(); tiles.advance()) {
      const uint32_t stage = ring.wait();
      fill_ring(ring, queue, warp, is_ahead, false);
      sums.add_tile(stage, tiles.position, begin, end, params.rows.is_bulk, params.rule);
    }
    if (queue.has_next()) {
      queries.load(params, queue.next_work);
    } else if (!has_few) {
      griddepcontrol_launch_dependents();  // not before: its blocks would crowd where ours end
                                           // first
    }
    sums.softmax.finish();
    if (threadIdx.x == 0) {
      note[0] = after_next;
      note[1] = left_last ? 1u : 0u;
    }
    leave_warp_sums(queue.work, sums, warp, ring.free_stage());
    __syncthreads();
    join_warps<Shape>(params, queue.work);
    after_next = note[0];
    const bool joins_before = note[1] != 0;
    fence_shared_for_async();  // sums were in free stages
    __syncthreads();
    if (is_padded) clear_stages<Shape>(ring.stage_at(ring.free_stage()), Shape::kStageBytes);
    // The count of splits comes back while the next piece is under way.
    const bool is_split = queue.work.item.num_splits > 1;
    left_last = threadIdx.x == 0 && is_split && count_split(params, queue.work, units.num_units);
    if (joins_before) join_splits<Shape>(params, units.work(params, index_before));
    if (!queue.has_next()) break;  // with its work at hand for the join
    index_before = queue.index;
    queue.index = queue.next;
    queue.next = after_next;
    queue.work = queue.next_work;
    is_ahead = false;
  }
  if (__syncthreads_or(left_last ? 1 : 0)) join_splits<Shape>(params, queue.work);
  if (takes_more && threadIdx.x == 0) {
    __threadfence();
    if (atomicAdd(&params.header->num_blocks_done, 1u) == gridDim.x - 1) {
      params.header->next_work = 0;
      params.header->num_blocks_done = 0;
    }
  }
}

}  // namespace halley::attention
