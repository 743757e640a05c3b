// Decode attention: one new token of each sequence, splits of sequences among
// blocks.
//
// A block takes (split, kv head) pairs until none is left. Its four warps take
// tiles of the split's positions in turn, each with its own ring of copies in
// flight, so that nothing in the loop waits for another warp. The warps' sums
// are joined in ascending order of warps; where a sequence has several splits,
// the block that finishes the last of them joins all in ascending order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/bulk_copies.cuh"
#include "halley/cuda/attention/decode_join.cuh"
#include "halley/cuda/attention/decode_shape.cuh"
#include "halley/cuda/attention/paged_copies.cuh"
#include "halley/cuda/attention/query_rows.cuh"
#include "halley/cuda/attention/softmax_rows.cuh"
#include "halley/cuda/runtime/early_launch.cuh"

namespace halley::attention {

/// Where a warp's copies go in a stage of its ring.
template <typename Shape>
struct RingLayout {
  using Rows = typename Shape::Rows;
  static constexpr int kTokens = Shape::kTileTokens;
  static __device__ int key(int row, int byte) {
    return tile_offset<Rows::kRowBytes, true>(row, byte, -1);
  }
  static __device__ int value(int row, int byte) {
    return Shape::kRowsBytes + tile_offset<Rows::kRowBytes, false>(row, byte, -1);
  }
  static __device__ int key_scale(int row) { return 2 * Shape::kRowsBytes + 4 * row; }
  static __device__ int value_scale(int row) { return key_scale(kTokens + row); }
};

/// A warp's attention over its tiles of a split.
template <KvDType kType, int kHeadDim>
struct DecodeWarp {
  using Shape = DecodeShape<kType, kHeadDim>;
  using Rows = typename Shape::Rows;
  static constexpr int kHeldSteps = Shape::kQueryInShared ? 1 : Rows::kSteps;

  SoftmaxRows<Rows> softmax;
  float values[Rows::kColumns][4] = {};  // columns as in value_dim()
  uint32_t held_query[kHeldSteps][4];
  int exchange = -1;  // of tile_offset()

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int warp() { return static_cast<int>(threadIdx.x / 32); }
  static __device__ uint32_t shared_query(int step) {
    return shared_address(shared_memory()) + Shape::kQueryBegin + 16 * (step * 32 + lane());
  }

  /// All warps make the same operands; where they stand in shared memory, each
  /// writes a part, and the block must meet before they are used.
  __device__ void load_query(const DecodeParams& params, const DecodeWork& work) {
    QueryRows<kType, kHeadDim> query;
    const std::byte* row_data[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane() / 4 + 8 * h;
      const int64_t element = work.item.row * params.activations.q_stride +
                              static_cast<int64_t>(work.first_head + row) * params.rows.head_dim;
      row_data[h] = row < work.num_rows ? params.activations.q + 2 * element : nullptr;
      softmax.first[h] = work.item.begin;
      softmax.last[h] = work.item.end - 1;
    }
    query.load(row_data, params.rows.head_dim, params.activations.q_is_bf16);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      query.multiplier[h] = inverse_power(quad_max(query.greatest(h)));
      softmax.factor[h] = params.rule.scale / query.multiplier[h];
    }
#pragma unroll
    for (int step = 0; step < Rows::kSteps; ++step) {
      uint32_t a[4];
      query.operand(step, a, softmax.query_sum);
      if constexpr (Shape::kQueryInShared) {
        if (step % kDecodeWarps == warp()) {
          store_shared_quad(shared_query(step), make_uint4(a[0], a[1], a[2], a[3]));
        }
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) held_query[step][i] = a[i];
      }
    }
    if constexpr (Rows::kHasZeros) {
      softmax.query_sum[0] = quad_sum(softmax.query_sum[0]);
      softmax.query_sum[1] = quad_sum(softmax.query_sum[1]);
    }
  }

  __device__ void query_operand(int step, uint32_t (&a)[4]) const {
    if constexpr (Shape::kQueryInShared) {
      const uint4 all = load_shared_quad(shared_query(step));
      a[0] = all.x;
      a[1] = all.y;
      a[2] = all.z;
      a[3] = all.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = held_query[step][i];
    }
  }

  __device__ void add_tile(uint32_t stage, int position, const ScoreRule& rule) {
    const bool sees_all =
        position >= softmax.first[0] && position + Shape::kTileTokens - 1 <= softmax.last[0];
    if (!sees_all && exchange == 0) clear_hidden_values(stage + Shape::kRowsBytes, position);
    float scores[Shape::kTiles][4];
    multiply_keys(stage, scores);
    ValueUnits units;
    if constexpr (kHoldsValues) load_values(stage + Shape::kRowsBytes, units);
    float rescale[2];
    const bool is_changed =
        softmax.step(scores, position, sees_all, rule, stage + 2 * Shape::kRowsBytes, rescale);
    if (__any_sync(0xFFFFFFFFu, is_changed)) {
#pragma unroll
      for (int n = 0; n < Rows::kColumns; ++n) {
        values[n][0] *= rescale[0];
        values[n][1] *= rescale[0];
        values[n][2] *= rescale[1];
        values[n][3] *= rescale[1];
      }
    }
    if constexpr (!kHoldsValues) load_values(stage + Shape::kRowsBytes, units);
    add_values(units, scores);
  }

  /// The head's element of column 2c + j of column tile n.
  static __device__ int value_dim(int n, int j) {
    const int unit = n / Rows::kValueUnitElements * 8 + 2 * (lane() % 4) + j;
    return unit * Rows::kValueUnitElements + n % Rows::kValueUnitElements;
  }

 private:
  // Bulk copies bring what a page has there, which may be no number: times a
  // weight of 0 it would still be none.
  __device__ void clear_hidden_values(uint32_t values_at, int position) const {
    for (int row = 0; row < Shape::kTileTokens; ++row) {
      if (position + row >= softmax.first[0] && position + row <= softmax.last[0]) continue;
      for (int byte = 16 * lane(); byte < Rows::kRowBytes; byte += 16 * 32) {
        store_shared_quad(values_at + row * Rows::kRowBytes + byte, make_uint4(0, 0, 0, 0));
      }
    }
    fence_shared_for_async();
    __syncwarp();
  }

  // Where a tile has few columns, even and odd steps have sums of their own:
  // products that wait for each other are half as many.
  __device__ void multiply_keys(uint32_t keys, float (&scores)[Shape::kTiles][4]) const {
    constexpr int kSums = Shape::kTiles <= 2 ? 2 : 1;
    const int g = lane() / 4, c = lane() % 4;
    float sums[kSums][Shape::kTiles][4] = {};
#pragma unroll
    for (int i = 0; i < Rows::kKeyUnits; ++i) {
      Words<Rows::kKeyUnitBytes> units[Shape::kTiles];
#pragma unroll
      for (int n = 0; n < Shape::kTiles; ++n) {
        const int at = tile_offset<Rows::kRowBytes, true>(
            8 * n + g, (4 * i + c) * Rows::kKeyUnitBytes, exchange);
        units[n] = Words<Rows::kKeyUnitBytes>::load_shared(keys + at);
      }
#pragma unroll
      for (int step = 0; step < Rows::kKeyUnitSteps; ++step) {
        uint32_t a[4];
        query_operand(i * Rows::kKeyUnitSteps + step, a);
#pragma unroll
        for (int n = 0; n < Shape::kTiles; ++n) {
          uint32_t b[2];
          key_operand<kType>(units[n], step, b);
          multiply_add<Rows::kOperand>(sums[step % kSums][n], a, b[0], b[1]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < Shape::kTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[n][j] = kSums == 1 ? sums[0][n][j] : __fadd_rn(sums[0][n][j], sums[kSums - 1][n][j]);
      }
    }
  }

  // Values of the tokens 2c, 2c + 1, 2c + 8, 2c + 9 of each step. Small heads
  // hold them all from before the softmax on, which hides the wait for them.
  static constexpr bool kHoldsValues = kHeadDim <= 128;
  static constexpr int kValueSteps = Shape::kTiles / 2;
  struct ValueUnits {
    Words<Rows::kValueUnitBytes> of[kValueSteps][Rows::kValueUnits][4];
  };

  __device__ void load_values(uint32_t rows, ValueUnits& units) const {
    const int g = lane() / 4, c = lane() % 4;
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
#pragma unroll
      for (int i = 0; i < Rows::kValueUnits; ++i) {
#pragma unroll
        for (int token = 0; token < 4; ++token) {
          const int row = 16 * step + 2 * c + token % 2 + token / 2 * 8;
          const int at = tile_offset<Rows::kRowBytes, false>(
              row, (8 * i + g) * Rows::kValueUnitBytes, exchange);
          units.of[step][i][token] = Words<Rows::kValueUnitBytes>::load_shared(rows + at);
        }
      }
    }
  }

  __device__ void add_values(const ValueUnits& units, const float (&weights)[Shape::kTiles][4]) {
    constexpr int kPerWord = Rows::kElementsPerWord;
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      uint32_t a[4];
      weight_operand<Rows::kOperand>(weights, step, a);
#pragma unroll
      for (int i = 0; i < Rows::kValueUnits; ++i) {
        const auto& tokens = units.of[step][i];
#pragma unroll
        for (int word = 0; word < Rows::kValueUnitBytes / 4; ++word) {
          uint32_t b0[kPerWord], b1[kPerWord];
          pair_values<kType>(tokens[0].words[word], tokens[1].words[word], b0);
          pair_values<kType>(tokens[2].words[word], tokens[3].words[word], b1);
#pragma unroll
          for (int e = 0; e < kPerWord; ++e) {
            const int n = i * Rows::kValueUnitElements + word * kPerWord + e;
            multiply_add<Rows::kOperand>(values[n], a, b0[e], b1[e]);
          }
        }
      }
    }
  }
};

/// A warp's ring of tiles: how copies into it are started and waited for.
template <typename Shape>
struct DecodeRing {
  using Layout = RingLayout<Shape>;

  PagedCopies<Layout> rows;
  BulkCopies<Layout> runs;
  bool is_bulk;
  uint32_t begin;      // of the warp's stages in shared memory
  uint32_t barriers;   // of the warp's stages
  uint32_t& parities;  // bit i: of stage i's next phase; kept through all of the
                       // kernel

  static __device__ int page_shift(int page_tokens) { return 31 - __clz(page_tokens); }

  __device__ DecodeRing(const DecodeParams& params, const DecodeWork& work, uint32_t& phase_bits)
      : rows{params.rows, params.tables + work.item.table_begin, work.item.begin, work.item.end,
             work.kv_head},
        runs{params.rows,  params.tables + work.item.table_begin, work.item.begin, work.item.end,
             work.kv_head, page_shift(params.rows.page_tokens)},
        is_bulk(params.rows.is_bulk),
        parities(phase_bits) {
    const uint32_t base = shared_address(shared_memory()), warp = threadIdx.x / 32;
    begin = base + warp * Shape::kRingBytes;
    barriers = base + Shape::kBarrierBegin + warp * (8 * Shape::kStages);
  }

  __device__ uint32_t stage_at(int stage) const { return begin + stage * Shape::kStageBytes; }
  __device__ int page_of(int tile) const {
    const int position = tile * Shape::kTileTokens;
    return is_bulk ? runs.page_of(position) : rows.page_of(position);
  }
  /// A tile behind the split's end is none; every call counts for wait().
  __device__ void start(int tile, int page, int stage) const {
    const int position = tile * Shape::kTileTokens;
    const bool is_tile = position < rows.end;
    if (is_bulk) {
      if (is_tile) runs.start(position, page, stage_at(stage), barriers + 8 * stage);
      return;
    }
    if (is_tile) rows.start(position, page, stage_at(stage), 0);
    close_copy_group();
  }
  /// The oldest tile, in `stage`, is there for all lanes, and all are done with
  /// the one before.
  __device__ void wait(int stage) {
    if (is_bulk) {
      wait_for_barrier(barriers + 8 * stage, parities >> stage & 1u);
      parities ^= 1u << stage;
    } else {
      wait_for_copies<Shape::kStages - 2>();
    }
    __syncwarp();
  }
};

/// Positions of one split through the warp's ring.
template <typename Warp>
__device__ inline void attend_split(const DecodeParams& params, const DecodeWork& work,
                                    uint32_t& parities, Warp& warp_state) {
  using Shape = typename Warp::Shape;
  const int warp = Warp::warp();
  DecodeRing<Shape> ring(params, work, parities);
  warp_state.exchange = ring.is_bulk ? 0 : -1;
  // Tile t of the sequence belongs to warp t % kDecodeWarps, whatever the
  // split's first tile is.
  const int begin = work.item.begin / Shape::kTileTokens;
  const int end = (work.item.end + Shape::kTileTokens - 1) / Shape::kTileTokens;
  const int first = begin + (warp - begin % kDecodeWarps + kDecodeWarps) % kDecodeWarps;
  int pages[Shape::kStages];
#pragma unroll
  for (int i = 0; i < Shape::kStages; ++i) pages[i] = ring.page_of(first + i * kDecodeWarps);
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) ring.start(first + i * kDecodeWarps, pages[i], i);
  int next = first + (Shape::kStages - 1) * kDecodeWarps;  // tile to copy
  int next_page = pages[Shape::kStages - 1];
  warp_state.load_query(params, work);
  if constexpr (Shape::kQueryInShared) __syncthreads();
  int stage = 0;
  for (int tile = first; tile < end; tile += kDecodeWarps) {
    ring.wait(stage);
    ring.start(next, next_page, stage == 0 ? Shape::kStages - 1 : stage - 1);
    next += kDecodeWarps;
    next_page = ring.page_of(next);
    warp_state.add_tile(ring.stage_at(stage), tile * Shape::kTileTokens, params.rule);
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
  wait_for_copies<0>();
  warp_state.softmax.finish();
}

/// What copies leave out must multiply to 0. Joining has written there.
template <typename Shape>
__device__ inline void clear_rings() {
  const uint32_t rings = shared_address(shared_memory());
  for (uint32_t i = threadIdx.x; i < kDecodeWarps * Shape::kRingBytes / 16; i += kDecodeThreads) {
    store_shared_quad(rings + 16 * i, make_uint4(0, 0, 0, 0));
  }
  __syncthreads();
}

template <KvDType kType, int kHeadDim>
__global__ void __launch_bounds__(kDecodeThreads, (DecodeShape<kType, kHeadDim>::kBlocks))
    decode_kernel(const __grid_constant__ DecodeParams params) {
  using Shape = DecodeShape<kType, kHeadDim>;
  auto* note = reinterpret_cast<uint32_t*>(shared_memory() + Shape::kNoteBegin);
  const uint32_t barriers = shared_address(shared_memory()) + Shape::kBarrierBegin;
  uint32_t index = blockIdx.x, parities = 0;
  // The host has written these, before any kernel of the step.
  DecodeItem item = decode_item(params, index);  // on its way together with the count of items
  const uint32_t num_work = params.header->num_items * num_decode_units(params);
  const bool takes_more = num_work > gridDim.x;  // else a block has one piece, and none counts
  if (threadIdx.x < kDecodeWarps * Shape::kStages) {
    init_barrier(barriers + 8 * threadIdx.x, 1);
    publish_barriers();
  }
  wait_for_earlier_kernels();
  __syncthreads();
  while (index < num_work) {
    uint32_t next = num_work;
    if (takes_more && threadIdx.x == 0) {
      next = gridDim.x + atomicAdd(&params.header->next_work, 1u);
    }
    const DecodeWork work = decode_work(params, item, index);
    if (params.rows.head_dim < kHeadDim) clear_rings<Shape>();
    {
      DecodeWarp<kType, kHeadDim> warp_state;
      attend_split(params, work, parities, warp_state);
      if (threadIdx.x == 0) note[0] = next;
      join_warps(params, work, warp_state);  // the block meets in it
    }
    index = note[0];
    item = decode_item(params, index);
    if (work.item.num_splits > 1) join_splits<Shape>(params, work);
    fence_shared_for_async();  // joining has used the rings
    __syncthreads();
  }
  let_next_kernel_start();
  if (takes_more && threadIdx.x == 0) {
    __threadfence();
    if (atomicAdd(&params.header->num_blocks_done, 1u) == gridDim.x - 1) {
      params.header->next_work = 0;
      params.header->num_blocks_done = 0;
    }
  }
}

}  // namespace halley::attention
