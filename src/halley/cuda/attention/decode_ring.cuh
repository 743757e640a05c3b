// A warp's ring of tiles of keys and values, filled from pages through all pieces of its block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/decode_instructions.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/paged_copies.cuh"

namespace halley::attention {

/// Where cp.async puts rows, for pages that bulk copies cannot serve.
template <typename Shape>
struct StageLayout {
  using Rows = typename Shape::Rows;
  static constexpr int kTokens = min_of(32, Shape::kTokens);
  static __device__ int key(int row, int byte) { return row * Rows::kRowBytes + byte; }
  static __device__ int value(int row, int byte) { return Shape::kValues + key(row, byte); }
  static __device__ int key_scale(int row) { return Shape::kKeyScales + 4 * row; }
  static __device__ int value_scale(int row) { return Shape::kValueScales + 4 * row; }
};

/// What a lane's bulk copy brings of each tile: the keys, the values, or the scales of either, of
/// 16 tokens. They are next to each other in a page.
template <typename Shape>
struct LaneCopy {
  using Rows = typename Shape::Rows;
  static constexpr int kRun = 16;
  static constexpr int kRuns = Shape::kTokens / kRun;
  static constexpr int kNumLanes = (Rows::kHasScales ? 4 : 2) * kRuns;

  int64_t from = 0;  // bytes from a page's start
  int to = 0;        // bytes from a stage's start
  int token = 0;     // of the tile
  int token_bytes = 0;

  __device__ LaneCopy(const PagedRows& rows, int lane) {
    const bool is_value = lane / kRuns % 2 != 0;
    token = lane % kRuns * kRun;
    if (lane < 2 * kRuns) {
      token_bytes = Rows::kRowBytes;
      from = is_value ? rows.value_bytes : 0;
      to = is_value ? Shape::kValues : 0;
    } else {
      token_bytes = 4;
      from = rows.scale_bytes + (is_value ? rows.value_scale_bytes : 0);
      to = is_value ? Shape::kValueScales : Shape::kKeyScales;
    }
    to += token * token_bytes;
  }
  __device__ int num_bytes() const { return kRun * token_bytes; }
};

/// The warp's tiles of one piece: t, t + kDecodeWarps, ... up to the piece's end. Tile t of a
/// sequence belongs to warp t % kDecodeWarps, whatever the piece's first tile is.
template <typename Shape>
struct TileRange {
  int position = 0;        // of the next tile
  int begin = 0, end = 0;  // of the piece

  __device__ TileRange() = default;
  __device__ TileRange(const DecodeItem& item, int warp) : begin(item.begin), end(item.end) {
    const int first = begin / Shape::kTokens;
    position =
        (first + (warp - first % kDecodeWarps + kDecodeWarps) % kDecodeWarps) * Shape::kTokens;
  }
  __device__ bool has_tile() const { return position < end; }
  __device__ void advance() { position += kDecodeWarps * Shape::kTokens; }
  /// The newest token of a sequence is written by the kernel ahead.
  __device__ bool is_last_tile() const { return position + Shape::kTokens >= end; }
};

/// The tile's rows one by one. Not inlined: of no use to most caches, and large.
template <typename Shape>
__device__ __noinline__ void copy_rows(const DecodeParams& params, const int32_t* table,
                                       TileRange<Shape> tile, int kv_head, uint32_t to,
                                       uint32_t barrier) {
  using Layout = StageLayout<Shape>;
  const PagedCopies<Layout> copies{params.rows, table, tile.begin, tile.end, kv_head};
  for (int row = 0; row < Shape::kTokens; row += Layout::kTokens) {
    const int position = tile.position + row;
    copies.start(position, copies.page_of(position), to, row);
  }
  arrive_after_copies(barrier);
}

/// The ring itself. Copies run ahead of the sums by up to kStages - 1 tiles, into the next piece.
/// While no tile is being added, the stage before the next one is free.
template <typename Shape>
struct DecodeRing {
  using Rows = typename Shape::Rows;
  static constexpr int kStages = Shape::kStages;

  const DecodeParams& params;
  LaneCopy<Shape> lane_copy;
  TileRange<Shape> tiles;  // to copy
  const int32_t* table = nullptr;
  int64_t own_from = 0;  // LaneCopy's, for the piece's kv head
  int kv_head = 0;
  int page = 0;  // of the lane's part of the next tile
  int page_shift;
  uint32_t begin, barriers;  // of the warp's stages in shared memory
  uint32_t parities = 0;     // bit i: of stage i's next phase
  int copy_stage = 0, use_stage = 0;
  int num_flying = 0;  // tiles that are copied and not yet waited for

  __device__ DecodeRing(const DecodeParams& the_params, int warp)
      : params(the_params),
        lane_copy(the_params.rows, lane()),
        page_shift(log2_of(the_params.rows.page_tokens)) {
    const uint32_t base = shared_address(shared_memory());
    begin = base + static_cast<uint32_t>(warp * Shape::kRingBytes);
    barriers = base + static_cast<uint32_t>(Shape::kBarrierBegin + warp * (8 * kStages));
  }

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int log2_of(int x) { return 31 - __clz(x); }
  __device__ uint32_t stage_at(int stage) const {
    return begin + static_cast<uint32_t>(stage * Shape::kStageBytes);
  }
  __device__ int free_stage() const { return use_stage == 0 ? kStages - 1 : use_stage - 1; }

  /// By one lane of the warp; publish_barriers() and a barrier of the block follow.
  __device__ void init_barriers() const {
    for (int i = 0; i < kStages; ++i) init_barrier(barriers + 8 * i, params.rows.is_bulk ? 1 : 32);
  }

  /// Copies are from this piece from now on.
  __device__ void enter(const DecodeWork& work, int warp) {
    tiles = TileRange<Shape>(work.item, warp);
    table = params.tables + work.item.table_begin;
    kv_head = work.kv_head;
    own_from = lane_copy.from +
               static_cast<int64_t>(kv_head) * params.rows.page_tokens * lane_copy.token_bytes;
    look_up();
  }

  /// Starts the copy of the next tile; there is one, and a stage for it.
  __device__ void start() {
    const uint32_t to = stage_at(copy_stage), barrier = barriers + 8 * copy_stage;
    if (params.rows.is_bulk) {
      start_bulk(to, barrier);
    } else {
      copy_rows<Shape>(params, table, tiles, kv_head, to, barrier);
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
  __device__ bool needs(int token) const {
    return lane() < LaneCopy<Shape>::kNumLanes && token < tiles.end &&
           token + LaneCopy<Shape>::kRun > tiles.begin;
  }
  __device__ void look_up() {
    const int token = tiles.position + lane_copy.token;
    page = params.rows.is_bulk && needs(token) ? table[token >> page_shift] : 0;
  }

  __device__ void start_bulk(uint32_t to, uint32_t barrier) const {
    const int token = tiles.position + lane_copy.token;
    const bool is_needed = needs(token);
    const int own_bytes = lane_copy.num_bytes();
    const uint32_t num_bytes =
        __reduce_add_sync(0xFFFFFFFFu, static_cast<uint32_t>(is_needed ? own_bytes : 0));
    if (lane() == 0) arrive_and_expect(barrier, static_cast<int>(num_bytes));
    __syncwarp();
    if (is_needed) {
      const int slot = token & (params.rows.page_tokens - 1);
      const std::byte* from = params.rows.pages + page * params.rows.page_bytes + own_from +
                              slot * lane_copy.token_bytes;
      start_bulk_copy(to + static_cast<uint32_t>(lane_copy.to), from, own_bytes, barrier);
    }
  }
};

}  // namespace halley::attention
