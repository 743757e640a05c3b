// The ring of stages in shared memory, and the warp that fills it.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/streamed_arguments.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/pipeline_state.cuh"

namespace halley::cuda {

/// Addresses of shared memory.
struct StreamedRing {
  uint32_t base = 0;  // a multiple of 1024
  uint32_t first_inputs = 0, barriers = 0;
  int w_stage_bytes = 0, x_stage_bytes = 0, num_stages = 0;

  __device__ __forceinline__ void set(const StreamedArguments& args) {
    first_inputs = base + static_cast<uint32_t>(args.shared.inputs);
    barriers = base + static_cast<uint32_t>(args.shared.barriers);
    w_stage_bytes = args.shared.w_stage_bytes;
    x_stage_bytes = args.shared.x_stage_bytes;
    num_stages = args.plan.num_stages;
  }
  __device__ uint32_t weights(int stage) const {
    return base + static_cast<uint32_t>(stage * w_stage_bytes);
  }
  __device__ uint32_t inputs(int stage) const {
    return first_inputs + static_cast<uint32_t>(stage * x_stage_bytes);
  }
  __device__ uint32_t full(int stage) const { return barriers + static_cast<uint32_t>(stage * 8); }
  __device__ uint32_t empty(int stage) const { return full(stage + num_stages); }
};

/// What is copied next: a stage of a tile's inputs.
struct StreamedCursor {
  ptx::PipelineState stage;
  int tile = 0;
  int step = 0;  // of the block's

  __device__ __forceinline__ void advance(const StreamedArguments& args, int num_steps) {
    stage.advance(args.plan.num_stages);
    if (++step == num_steps) {
      step = 0;
      tile += args.plan.num_clusters;
    }
  }
};

/// One thread: empty stages.
template <int kConsumerWarps>
__device__ __forceinline__ void init_ring(const StreamedRing& ring) {
  for (int stage = 0; stage < ring.num_stages; ++stage) {
    ptx::mbarrier_init(ring.full(stage), 1);
    ptx::mbarrier_init(ring.empty(stage), kConsumerWarps);
  }
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async_shared();
}

/// One thread: weights, of which the first are copied before earlier kernels are done. Announces
/// the bytes of both copies.
template <int kBoxes>
__device__ __forceinline__ void copy_streamed_weights(const CUtensorMap& map,
                                                      const StreamedArguments& args,
                                                      const StreamedRing& ring, int first_tile,
                                                      int first_step, int num_steps) {
  StreamedCursor cursor;
  cursor.tile = first_tile;
  cursor.stage.parity = 1;  // every stage is empty at first
  const int stage_bytes = ring.w_stage_bytes + ring.x_stage_bytes;
  for (int i = 0; cursor.tile < args.plan.num_tiles; ++i) {
    if (i == args.plan.early_stages) ptx::griddepcontrol_wait();
    const uint32_t full = ring.full(cursor.stage.index);
    const uint32_t to = ring.weights(cursor.stage.index);
    const int chunk = (first_step + cursor.step) * args.plan.stage_chunks;
    const int row = cursor.tile * args.tile_places;
    ptx::mbarrier_wait_parity(ring.empty(cursor.stage.index), cursor.stage.parity);
    ptx::mbarrier_arrive_expect_tx(full, stage_bytes);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      ptx::cp_async_bulk_tensor_3d(to + static_cast<uint32_t>(box * (ring.w_stage_bytes / kBoxes)),
                                   &map, {0, row + box * args.second_box, chunk}, full,
                                   ptx::kEvictFirst);
    }
    cursor.advance(args, num_steps);
  }
}

/// One thread, behind earlier kernels: inputs.
__device__ __forceinline__ void copy_streamed_inputs(const CUtensorMap& map,
                                                     const StreamedArguments& args,
                                                     const StreamedRing& ring, int first_tile,
                                                     int first_step, int num_steps) {
  StreamedCursor cursor;
  cursor.tile = first_tile;
  cursor.stage.parity = 1;
  while (cursor.tile < args.plan.num_tiles) {
    ptx::mbarrier_wait_parity(ring.empty(cursor.stage.index), cursor.stage.parity);
    ptx::cp_async_bulk_tensor_3d(ring.inputs(cursor.stage.index), &map,
                                 {0, 0, (first_step + cursor.step) * args.plan.stage_chunks},
                                 ring.full(cursor.stage.index));
    cursor.advance(args, num_steps);
  }
}

}  // namespace halley::cuda
