// A warp's ring of tiles of keys and values, filled from pages through all pieces of its block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "halley/cuda/attention/decode_copies.cuh"
#include "halley/cuda/attention/decode_shape.cuh"

namespace halley::attention {

/// Copies run ahead of the sums by up to kStages - 1 tiles, into the next piece. While no tile is
/// being added, the stage before the next one is free.
template <typename Shape>
struct DecodeRing {
  static constexpr int kStages = Shape::kStages;
  using Runs = std::conditional_t<Shape::Rows::kHasScales, ChunkRuns<Shape>, BulkRuns<Shape>>;

  const DecodeParams& params;
  CopySource source;
  DecodeTiles<Shape> tiles;  // to copy
  Runs runs;
  uint32_t begin, barriers;  // of the warp's stages in shared memory
  uint32_t parities = 0;     // bit i: of stage i's next phase
  int copy_stage = 0, use_stage = 0;
  int num_flying = 0;  // tiles that are copied and not yet waited for

  __device__ DecodeRing(const DecodeParams& the_params, int warp)
      : params(the_params), source{the_params.rows} {
    source.page_shift = 31 - __clz(params.rows.page_tokens);
    const uint32_t base = shared_address(shared_memory());
    begin = base + static_cast<uint32_t>(warp * Shape::kRingBytes);
    barriers = base + static_cast<uint32_t>(Shape::kBarrierBegin + warp * (8 * kStages));
  }

  static __device__ int lane() { return CopySource::lane(); }
  __device__ uint32_t stage_at(int stage) const {
    return begin + static_cast<uint32_t>(stage * Shape::kStageBytes);
  }
  __device__ int free_stage() const { return use_stage == 0 ? kStages - 1 : use_stage - 1; }

  /// By one lane of the warp; publish_barriers() and a barrier of the warp follow.
  __device__ void init_barriers() const {
    const int num_arrivals = params.rows.is_bulk ? Runs::kNumArrivals : 32;
    for (int i = 0; i < kStages; ++i) init_barrier(barriers + 8 * i, num_arrivals);
  }

  /// Copies are from this piece from now on.
  __device__ void enter(const DecodeWork& work, int warp) {
    tiles = DecodeTiles<Shape>(work.item, warp);
    source.table = params.tables + work.item.table_begin;
    source.kv_head = work.kv_head;
    look_up();
  }

  /// Starts the copy of the next tile; there is one, and a stage for it.
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
    ++num_flying;
  }

  /// The oldest tile is there for all lanes, and all are done with the one before. Returns its
  /// stage.
  __device__ uint32_t wait() {
    wait_for_barrier(barriers + 8 * use_stage, parities >> use_stage & 1u);
    parities ^= 1u << use_stage;
    __syncwarp();
    --num_flying;
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
