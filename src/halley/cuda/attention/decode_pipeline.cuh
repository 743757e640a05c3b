// A warp's pipeline of key and value tiles, filled from pages across all work items of its team.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "halley/cuda/attention/decode_copies.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/operand.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::attention {

/// Copies run ahead of the MMAs by up to kStages - 1 tiles, into the next work item. Between two
/// tiles the stage before the next one is free.
template <typename Shape>
struct DecodePipeline {
  static constexpr int kStages = Shape::kStages;
  using Runs = std::conditional_t<Shape::Rows::kHasScales, CpAsyncRuns<Shape>, BulkCopyRuns<Shape>>;

  const DecodeParams& params;
  CopySource source;
  DecodeTiles<Shape> tiles;  // next tile to copy
  Runs runs;
  uint32_t begin, barriers;  // shared-memory addresses of the warp's stages and mbarriers
  uint32_t phase_bits = 0;   // bit i: phase parity of stage i that is waited for next
  int copy_stage = 0, use_stage = 0;
  int num_in_flight = 0;  // tiles that are copied and not yet waited for

  explicit __device__ DecodePipeline(const DecodeParams& the_params)
      : params(the_params), source{the_params.rows} {
    const int warp = Shape::Team::warp_of_cta();
    source.page_shift = 31 - __clz(params.rows.page_tokens);
    const uint32_t base = ptx::cvta_to_shared(shared_memory());
    begin = base + static_cast<uint32_t>(warp * Shape::kPipelineBytes);
    barriers = base + static_cast<uint32_t>(Shape::kBarrierBegin + warp * (8 * kStages));
  }

  static __device__ int lane() { return CopySource::lane(); }
  __device__ uint32_t stage_at(int stage) const {
    return begin + static_cast<uint32_t>(stage * Shape::kStageBytes);
  }
  __device__ int free_stage() const { return use_stage == 0 ? kStages - 1 : use_stage - 1; }
  /// Bytes from the start of the CTA's shared memory to the free stage.
  __device__ int free_begin() const {
    return Shape::Team::warp_of_cta() * Shape::kPipelineBytes + free_stage() * Shape::kStageBytes;
  }

  /// One lane of the warp calls it; ptx::fence_mbarrier_init() and __syncwarp() follow.
  __device__ void init_barriers() const {
    const int num_arrivals = params.rows.is_bulk ? Runs::kNumArrivals : 32;
    for (int i = 0; i < kStages; ++i) ptx::mbarrier_init(barriers + 8 * i, num_arrivals);
  }

  /// Copies are from this work item from now on.
  __device__ void enter(const DecodeWork& work) {
    tiles = DecodeTiles<Shape>(work.item);
    source.table = params.tables + work.item.table_begin;
    source.kv_head = work.kv_head;
    look_up();
  }

  /// Issues the copy of the next tile. The caller knows that there are a tile and a free stage.
  __device__ void start() {
    const uint32_t to = stage_at(copy_stage), barrier = barriers + 8 * copy_stage;
    if (params.rows.is_bulk) {
      runs.start(source, tiles, to, barrier);
    } else {
      copy_rows<Shape>(source, tiles, to, barrier);
    }
    tiles.advance();
    look_up();
    copy_stage = copy_stage + 1 == kStages ? 0 : copy_stage + 1;
    ++num_in_flight;
  }

  /// Waits until the oldest tile has arrived for all lanes, which are all done with the one before
  /// it. Returns its stage's address.
  __device__ uint32_t wait() {
    mbarrier_wait(barriers + 8 * use_stage, phase_bits >> use_stage & 1u);
    phase_bits ^= 1u << use_stage;
    __syncwarp();
    --num_in_flight;
    const uint32_t stage = stage_at(use_stage);
    use_stage = use_stage + 1 == kStages ? 0 : use_stage + 1;
    return stage;
  }

 private:
  __device__ void look_up() {
    if (params.rows.is_bulk) runs.look_up(source, tiles);
  }
};

}  // namespace halley::attention
