// Decode attention (split-KV): one new token a sequence, its KV positions split among CTAs.
//
// q, out: [M, H * D] row-major f16 or bf16;  pages: [2, J, P, D] of the cache's type (keys, values)
// acc_s: [tokens, 8 heads] f32 per warp (S^T = K Q^T);  acc_o: [D, 8 heads] f32 per warp
// (O^T = V^T P^T)
//
// A team of warps takes (split, kv head) work items until none is left: the four warps of a CTA,
// which take the tiles of the split round-robin, or, where there are many items, each warp for
// itself. Each warp has a pipeline of its own, whose copies run ahead into the next item: no warp
// waits for another one in the main loop, and memory stays busy during the combine. The team
// combines its warps' partial results in ascending order of warps. If a sequence has several
// splits, the team whose split arrives last combines all of them in ascending order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/decode_combine.cuh"
#include "halley/cuda/attention/decode_pipeline.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/decode_warp.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::attention {

/// A team's work items in the order in which it takes them: the current one, and the next one, into
/// which copies run ahead.
struct DecodeQueue {
  uint32_t index, next;  // of work items; >= num_work: none
  uint32_t num_work;
  DecodeWork work, next_work;

  __device__ bool has_next() const { return next < num_work; }
};

/// Issues copies until all stages but one are in flight or no tile is left. `before_wait`: called
/// before ptx::griddepcontrol_wait(), when the newest token of a sequence may not be written yet.
template <typename Shape>
__device__ inline void fill_pipeline(DecodePipeline<Shape>& pipeline, const DecodeQueue& queue,
                                     bool& is_ahead, bool before_wait) {
  while (pipeline.num_in_flight < Shape::kStages - 1) {
    if (!pipeline.tiles.has_tile()) {
      if (is_ahead || before_wait || !queue.has_next()) return;
      is_ahead = true;
      pipeline.enter(queue.next_work);
      continue;
    }
    if (before_wait && pipeline.tiles.is_last_tile()) return;
    pipeline.start();
  }
}

/// Zero-fills the columns from head_dim to kHeadDim, which no copy writes, so that they contribute
/// 0. The combine has overwritten the free stage.
template <typename Shape>
__device__ inline void clear_stages(uint32_t begin, int num_bytes) {
  for (int i = 16 * static_cast<int>(threadIdx.x % 32); i < num_bytes; i += 16 * 32) {
    ptx::st_shared_b32x4(begin + static_cast<uint32_t>(i), make_uint4(0, 0, 0, 0));
  }
  __syncwarp();
}

template <KvDType kType, int kHeadDim, int kRows, int kTeamWarps>
__global__ void __launch_bounds__(kDecodeThreads,
                                  (DecodeShape<kType, kHeadDim, kRows, kTeamWarps>::kCtasPerSm))
    decode_kernel(const __grid_constant__ DecodeParams params) {
  using Shape = DecodeShape<kType, kHeadDim, kRows, kTeamWarps>;
  using Team = typename Shape::Team;
  auto* control =
      reinterpret_cast<uint32_t*>(shared_memory() + Shape::kControlBegin) + 2 * Team::first_warp();
  const DecodeUnits units(params, kRows);
  const bool is_padded = params.rows.head_dim < kHeadDim;
  // The host has written work items and page tables before any kernel of the step.
  const uint32_t num_teams = Team::num_teams();
  DecodeQueue queue;
  queue.index = Team::index();
  queue.next = queue.index + num_teams;
  queue.work = units.work(params, queue.index);
  queue.num_work = params.header->num_items * units.num_units;
  // Beyond two work items a team, teams take them from a counter.
  const bool is_dynamic = queue.num_work > 2 * num_teams;
  const bool is_single_wave = queue.num_work <= num_teams;  // at most one a team
  DecodePipeline<Shape> pipeline(params);
  if (pipeline.lane() == 0) {
    pipeline.init_barriers();
    ptx::fence_mbarrier_init();
  }
  if (is_padded) clear_stages<Shape>(pipeline.stage_at(0), Shape::kPipelineBytes);
  __syncwarp();
  bool is_ahead = false;
  if (queue.index < queue.num_work) {
    pipeline.enter(queue.work);
    fill_pipeline(pipeline, queue, is_ahead, true);
  }
  ptx::griddepcontrol_wait();
  // The SMs are about equally full now, and the next kernel's prefetches run during the combine.
  if (is_single_wave) ptx::griddepcontrol_launch_dependents();
  using Warp = DecodeWarp<Shape>;
  typename Warp::Queries queries;
  if (queue.index < queue.num_work) queries.load(params, queue.work);
  bool arrived_last = false;  // the team's thread 0: the previous split arrived last
  uint32_t index_before = 0;
  while (queue.index < queue.num_work) {
    uint32_t after_next = queue.num_work;
    if (is_dynamic && Team::thread() == 0) {
      after_next = 2 * num_teams + atomicAdd(&params.header->next_work, 1u);
    }
    queue.next_work = units.work(params, queue.next);
    fill_pipeline(pipeline, queue, is_ahead, false);
    Warp warp_state;
    warp_state.begin(queries, params.rule);
    const int begin = queue.work.item.begin, end = queue.work.item.end;
    for (DecodeTiles<Shape> tiles(queue.work.item); tiles.has_tile(); tiles.advance()) {
      const uint32_t stage = pipeline.wait();
      fill_pipeline(pipeline, queue, is_ahead, false);
      warp_state.add_tile(stage, tiles.position, begin, end, params.rows.is_bulk, params.rule);
    }
    if (queue.has_next()) {
      queries.load(params, queue.next_work);
    } else if (!is_single_wave) {
      // Not earlier: the next kernel's CTAs would crowd the SMs where ours end first.
      ptx::griddepcontrol_launch_dependents();
    }
    warp_state.softmax.finish();
    if (Team::thread() == 0) {
      control[0] = after_next;
      control[1] = arrived_last ? 1u : 0u;
    }
    store_warp_partials(queue.work, warp_state, pipeline.free_begin());
    Team::sync();
    combine_warps<Shape>(params, queue.work);
    after_next = control[0];
    const bool combines_previous = control[1] != 0;
    // Generic-proxy writes to the free stages come before the next bulk copies.
    ptx::fence_proxy_async_shared();
    Team::sync();
    // The atomic's result arrives while the next item is computed.
    const bool is_split = queue.work.item.num_splits > 1;
    arrived_last =
        Team::thread() == 0 && is_split && arrive_split(params, queue.work, units.num_units);
    if (combines_previous) {
      combine_splits<Shape>(params, units.work(params, index_before), pipeline.free_begin());
      if constexpr (Team::kIsAlone) {
        ptx::fence_proxy_async_shared();
        Team::sync();
      }
    }
    if (is_padded) {
      clear_stages<Shape>(pipeline.stage_at(pipeline.free_stage()), Shape::kStageBytes);
    }
    if (!queue.has_next()) break;  // the combine below needs its work
    index_before = queue.index;
    queue.index = queue.next;
    queue.next = after_next;
    queue.work = queue.next_work;
    is_ahead = false;
  }
  if (Team::sync_or(arrived_last)) {
    combine_splits<Shape>(params, queue.work, pipeline.free_begin());
  }
  if (is_dynamic && Team::thread() == 0) {
    __threadfence();
    if (atomicAdd(&params.header->num_teams_done, 1u) == num_teams - 1) {
      params.header->next_work = 0;
      params.header->num_teams_done = 0;
    }
  }
}

}  // namespace halley::attention
