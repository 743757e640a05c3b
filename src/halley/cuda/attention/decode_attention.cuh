// Decode attention: one new token of each sequence, splits of sequences among blocks.
//
// A block takes (split, kv head) pairs until none is left. Its four warps take tiles of the split's
// positions in turn, each with its own ring of copies in flight, so that nothing in the loop waits
// for another warp. The warps' sums are joined in ascending order of warps; where a sequence has
// several splits, the block that finishes the last of them joins all in ascending order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/paged_copies.cuh"
#include "halley/cuda/attention/query_rows.cuh"
#include "halley/cuda/attention/softmax_rows.cuh"

namespace halley::attention {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;

constexpr int max_of(int a, int b) { return a > b ? a : b; }

/// Sizes of one instance of the kernel. About 64 KB in flight on a multiprocessor are needed to
/// reach the memory's speed; rings of 8 KB tiles and two blocks give that and room for more.
template <KvDType kType, int kHeadDim>
struct DecodeShape {
  using Rows = KvRows<kType, kHeadDim>;
  static constexpr int kPaddedHeadDim = kHeadDim;
  static constexpr int kTileTokens = Rows::kRowBytes >= 256 ? 16 : 32;
  static constexpr int kTiles = kTileTokens / 8;
  static constexpr int kRowsBytes = kTileTokens * Rows::kRowBytes;  // keys, or values
  static constexpr int kScaleBytes = Rows::kHasScales ? kTileTokens * 8 : 0;
  static constexpr int kStageBytes = 2 * kRowsBytes + kScaleBytes;
  static constexpr int kStages = kStageBytes >= 8192 ? 3 : 4;
  static constexpr int kRingBytes = kStages * kStageBytes;
  // Joining warps reuses the rings: a warp's sums of values.
  static constexpr int kJoinBytes = kTileRows * kHeadDim * 4;
  static_assert(kJoinBytes <= kRingBytes);
  static constexpr bool kQueryInShared = kHeadDim > 128;
  static constexpr int kQueryBytes = kQueryInShared ? Rows::kSteps * 32 * 16 : 0;
  // Largest score and sum of each row, of every warp or split.
  static constexpr int kStatBytes = max_of(kDecodeWarps, kNumSplitsMax) * kTileRows * 8;

  static constexpr int kQueryBegin = kDecodeWarps * kRingBytes;
  static constexpr int kStatBegin = kQueryBegin + kQueryBytes;
  static constexpr int kNoteBegin = kStatBegin + kStatBytes;
  static constexpr int kSharedBytes = kNoteBegin + 16;
  static constexpr int kBlocks =
      kSharedBytes > 110 * 1024 ? 1 : 2;  // on a multiprocessor, at least
};

/// One piece of work: an item, a kv head, and up to kTileRows of its query heads.
struct DecodeWork {
  DecodeItem item;
  int unit = 0;  // among the kv heads' blocks of rows
  int kv_head = 0;
  int first_head = 0;
  int num_rows = 0;
};

__device__ inline DecodeWork decode_work(const DecodeParams& params, uint32_t index) {
  const int row_blocks = (params.rows.group_size + kTileRows - 1) / kTileRows;
  const auto num_units = static_cast<uint32_t>(params.rows.num_kv_heads * row_blocks);
  DecodeWork work;
  work.item = params.items[index / num_units];
  work.unit = static_cast<int>(index % num_units);
  work.kv_head = work.unit / row_blocks;
  const int first_row = work.unit % row_blocks * kTileRows;
  work.first_head = work.kv_head * params.rows.group_size + first_row;
  work.num_rows = min(kTileRows, params.rows.group_size - first_row);
  return work;
}

/// Where a warp's copies go in a stage of its ring.
template <typename Shape>
struct RingLayout {
  using Rows = typename Shape::Rows;
  static constexpr int kTokens = Shape::kTileTokens;
  static __device__ int key(int row, int byte) {
    return tile_offset<Rows::kRowBytes, true>(row, byte);
  }
  static __device__ int value(int row, int byte) {
    return Shape::kRowsBytes + tile_offset<Rows::kRowBytes, false>(row, byte);
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

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int warp() { return static_cast<int>(threadIdx.x / 32); }
  static __device__ uint4* shared_query() {
    return reinterpret_cast<uint4*>(shared_memory() + Shape::kQueryBegin);
  }

  /// All warps make the same operands; where they stand in shared memory, each writes a part, and
  /// the block must meet before they are used.
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
          shared_query()[step * 32 + lane()] = make_uint4(a[0], a[1], a[2], a[3]);
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
      const uint4 all = shared_query()[step * 32 + lane()];
      a[0] = all.x;
      a[1] = all.y;
      a[2] = all.z;
      a[3] = all.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = held_query[step][i];
    }
  }

  __device__ void add_tile(const std::byte* stage, int position, const ScoreRule& rule) {
    float scores[Shape::kTiles][4] = {};
    multiply_keys(stage, scores);
    float rescale[2];
    const bool sees_all =
        position >= softmax.first[0] && position + Shape::kTileTokens - 1 <= softmax.last[0];
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
    add_values(stage + Shape::kRowsBytes, scores);
  }

  /// The head's element of column 2c + j of column tile n.
  static __device__ int value_dim(int n, int j) {
    const int unit = n / Rows::kValueUnitElements * 8 + 2 * (lane() % 4) + j;
    return unit * Rows::kValueUnitElements + n % Rows::kValueUnitElements;
  }

 private:
  __device__ void multiply_keys(const std::byte* keys, float (&scores)[Shape::kTiles][4]) const {
    const int g = lane() / 4, c = lane() % 4;
#pragma unroll
    for (int i = 0; i < Rows::kKeyUnits; ++i) {
      Words<Rows::kKeyUnitBytes> units[Shape::kTiles];
#pragma unroll
      for (int n = 0; n < Shape::kTiles; ++n) {
        const int at =
            tile_offset<Rows::kRowBytes, true>(8 * n + g, (4 * i + c) * Rows::kKeyUnitBytes);
        units[n] = Words<Rows::kKeyUnitBytes>::load(keys + at);
      }
#pragma unroll
      for (int step = 0; step < Rows::kKeyUnitSteps; ++step) {
        uint32_t a[4];
        query_operand(i * Rows::kKeyUnitSteps + step, a);
#pragma unroll
        for (int n = 0; n < Shape::kTiles; ++n) {
          uint32_t b[2];
          key_operand<kType>(units[n], step, b);
          multiply_add<Rows::kOperand>(scores[n], a, b[0], b[1]);
        }
      }
    }
  }

  __device__ void add_values(const std::byte* rows, const float (&weights)[Shape::kTiles][4]) {
    constexpr int kPerWord = Rows::kElementsPerWord;
    const int g = lane() / 4, c = lane() % 4;
#pragma unroll
    for (int step = 0; step < Shape::kTiles / 2; ++step) {
      uint32_t a[4];
      weight_operand<Rows::kOperand>(weights, step, a);
#pragma unroll
      for (int i = 0; i < Rows::kValueUnits; ++i) {
        Words<Rows::kValueUnitBytes> units[4];  // tokens 2c, 2c + 1, 2c + 8, 2c + 9
#pragma unroll
        for (int token = 0; token < 4; ++token) {
          const int row = 16 * step + 2 * c + token % 2 + token / 2 * 8;
          const int at =
              tile_offset<Rows::kRowBytes, false>(row, (8 * i + g) * Rows::kValueUnitBytes);
          units[token] = Words<Rows::kValueUnitBytes>::load(rows + at);
        }
#pragma unroll
        for (int word = 0; word < Rows::kValueUnitBytes / 4; ++word) {
          uint32_t b0[kPerWord], b1[kPerWord];
          pair_values<kType>(units[0].words[word], units[1].words[word], b0);
          pair_values<kType>(units[2].words[word], units[3].words[word], b1);
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

/// Positions of one split through the warp's ring.
template <typename Warp>
__device__ inline void attend_split(const DecodeParams& params, const DecodeWork& work,
                                    Warp& warp_state) {
  using Shape = typename Warp::Shape;
  const int warp = Warp::warp();
  const auto stage_at = [warp](int stage) {
    return shared_memory() + warp * Shape::kRingBytes + stage * Shape::kStageBytes;
  };
  const auto position_of = [](int tile) { return tile * Shape::kTileTokens; };
  const PagedCopies<RingLayout<Shape>> copies{params.rows, params.tables + work.item.table_begin,
                                              work.item.begin, work.item.end, work.kv_head};
  const auto start_copies = [&](int tile, int page, int stage) {  // a group, which may be empty
    if (position_of(tile) < work.item.end) {
      copies.start(position_of(tile), page, stage_at(stage), 0);
    }
    close_copy_group();
  };
  // Tile t of the sequence belongs to warp t % kDecodeWarps, whatever the split's first tile is.
  const int begin = work.item.begin / Shape::kTileTokens;
  const int end = (work.item.end + Shape::kTileTokens - 1) / Shape::kTileTokens;
  const int first = begin + (warp - begin % kDecodeWarps + kDecodeWarps) % kDecodeWarps;
  int pages[Shape::kStages];
#pragma unroll
  for (int i = 0; i < Shape::kStages; ++i)
    pages[i] = copies.page_of(position_of(first + i * kDecodeWarps));
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) {
    start_copies(first + i * kDecodeWarps, pages[i], i);
  }
  int next = first + (Shape::kStages - 1) * kDecodeWarps;  // tile to copy
  int next_page = pages[Shape::kStages - 1];
  warp_state.load_query(params, work);
  if constexpr (Shape::kQueryInShared) __syncthreads();
  int stage = 0;
  for (int tile = first; tile < end; tile += kDecodeWarps) {
    wait_for_copies<Shape::kStages - 2>();
    __syncwarp();  // the tile is there for all lanes, and all are done with the one before
    start_copies(next, next_page, stage == 0 ? Shape::kStages - 1 : stage - 1);
    next += kDecodeWarps;
    next_page = copies.page_of(position_of(next));
    warp_state.add_tile(stage_at(stage), position_of(tile), params.rule);
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
  wait_for_copies<0>();
  warp_state.softmax.finish();
}

/// What is known of rows: (largest score, sum of weights), [parts, kTileRows] in shared memory.
/// Returns the rows' factors in its place: of a part's values in the result.
__device__ inline void stats_to_factors(float2* stats, int num_parts, int row) {
  float greatest = -infinity();
  for (int part = 0; part < num_parts; ++part) {
    greatest = fmaxf(greatest, stats[part * kTileRows + row].x);
  }
  float sum = 0;
  for (int part = 0; part < num_parts; ++part) {
    float2& stat = stats[part * kTileRows + row];
    // Where nothing was found, the sum is 0, or NaN that must not be lost.
    const float factor = stat.x == -infinity() ? stat.y : exp2_approx(stat.x - greatest);
    sum = fmaf(stat.y, factor, sum);
    stat.x = factor;
  }
  stats[row].y = sum;
}

/// Joins the warps' sums; writes the result, or the split's part of it with its stats.
template <typename Warp>
__device__ inline void join_warps(const DecodeParams& params, const DecodeWork& work,
                                  const Warp& warp_state) {
  using Shape = typename Warp::Shape;
  constexpr int kHeadDim = Shape::kPaddedHeadDim;
  auto* stats = reinterpret_cast<float2*>(shared_memory() + Shape::kStatBegin);
  const auto values_of = [](int warp) {
    return reinterpret_cast<float*>(shared_memory() + warp * Shape::kRingBytes);
  };
  __syncwarp();  // all lanes are done with the ring
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = Warp::lane() / 4 + 8 * h;
    if (row >= work.num_rows) continue;
    const auto& softmax = warp_state.softmax;
    if (Warp::lane() % 4 == 0) {
      stats[Warp::warp() * kTileRows + row] = make_float2(softmax.largest[h], softmax.sum[h]);
    }
    float* own = values_of(Warp::warp()) + row * kHeadDim;
#pragma unroll
    for (int n = 0; n < Shape::Rows::kColumns; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        own[Warp::value_dim(n, j)] =
            fmaf(warp_state.values[n][2 * h + j], softmax.unit[h], softmax.zero_sum[h]);
      }
    }
  }
  __syncthreads();
  // The row's stats of the whole block, before they are replaced by factors.
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t num_heads = static_cast<int64_t>(params.rows.num_kv_heads) * params.rows.group_size;
  const int64_t partial = (work.item.first_partial + work.item.split) * num_heads + work.first_head;
  if (thread < work.num_rows) {
    float greatest = -infinity();
    for (int warp = 0; warp < kDecodeWarps; ++warp) {
      greatest = fmaxf(greatest, stats[warp * kTileRows + thread].x);
    }
    stats_to_factors(stats, kDecodeWarps, thread);
    if (work.item.num_splits > 1) {
      params.partial_stats[partial + thread] = make_float2(greatest, stats[thread].y);
    }
  }
  __syncthreads();
  for (int i = 2 * thread; i < work.num_rows * kHeadDim; i += 2 * kDecodeThreads) {
    const int row = i / kHeadDim, dim = i % kHeadDim;
    float low = 0, high = 0;
    for (int warp = 0; warp < kDecodeWarps; ++warp) {
      const float factor = stats[warp * kTileRows + row].x;
      const float2 pair = *reinterpret_cast<const float2*>(values_of(warp) + i);
      low = fmaf(pair.x, factor, low);
      high = fmaf(pair.y, factor, high);
    }
    if (work.item.num_splits > 1) {
      *reinterpret_cast<float2*>(params.partial_values + partial * kHeadDim + i) =
          make_float2(low, high);
    } else if (dim < params.rows.head_dim) {
      const float sum = stats[row].y;
      const int64_t element = work.item.row * params.activations.out_stride +
                              static_cast<int64_t>(work.first_head + row) * params.rows.head_dim +
                              dim;
      store_pair(params.activations, element, low / sum, high / sum);
    }
  }
}

/// Joins all splits of the work's sequence, in ascending order, where this block finished the last.
template <typename Shape>
__device__ inline void join_splits(const DecodeParams& params, const DecodeWork& work) {
  constexpr int kHeadDim = Shape::kPaddedHeadDim;
  const int thread = static_cast<int>(threadIdx.x);
  auto* note = reinterpret_cast<uint32_t*>(shared_memory() + Shape::kNoteBegin);
  __threadfence();  // what this block has written is there for who sees the count below
  __syncthreads();
  const int row_blocks = (params.rows.group_size + kTileRows - 1) / kTileRows;
  if (thread == 0) {
    uint32_t* count =
        params.num_arrived +
        static_cast<int64_t>(work.item.sequence) * params.rows.num_kv_heads * row_blocks +
        work.unit;
    const bool is_last = atomicAdd(count, 1u) == static_cast<uint32_t>(work.item.num_splits) - 1;
    if (is_last) *count = 0;  // for the next launch
    note[1] = is_last ? 1u : 0u;
  }
  __syncthreads();
  if (note[1] == 0) return;
  __threadfence();
  auto* stats = reinterpret_cast<float2*>(shared_memory() + Shape::kStatBegin);
  const int64_t num_heads = static_cast<int64_t>(params.rows.num_kv_heads) * params.rows.group_size;
  const int64_t partial = work.item.first_partial * num_heads + work.first_head;
  for (int i = thread; i < work.item.num_splits * kTileRows; i += kDecodeThreads) {
    const int split = i / kTileRows, row = i % kTileRows;
    if (row < work.num_rows) {
      stats[i] = __ldcg(params.partial_stats + partial + split * num_heads + row);
    }
  }
  __syncthreads();
  if (thread < work.num_rows) stats_to_factors(stats, work.item.num_splits, thread);
  __syncthreads();
  for (int i = 2 * thread; i < work.num_rows * kHeadDim; i += 2 * kDecodeThreads) {
    const int row = i / kHeadDim, dim = i % kHeadDim;
    float low = 0, high = 0;
#pragma unroll 8
    for (int split = 0; split < work.item.num_splits; ++split) {
      const float2 pair = __ldcg(reinterpret_cast<const float2*>(
          params.partial_values + (partial + split * num_heads) * kHeadDim + i));
      const float factor = stats[split * kTileRows + row].x;
      low = fmaf(pair.x, factor, low);
      high = fmaf(pair.y, factor, high);
    }
    if (dim < params.rows.head_dim) {
      const float sum = stats[row].y;
      const int64_t element = work.item.row * params.activations.out_stride +
                              static_cast<int64_t>(work.first_head + row) * params.rows.head_dim +
                              dim;
      store_pair(params.activations, element, low / sum, high / sum);
    }
  }
}

template <KvDType kType, int kHeadDim>
__device__ inline void run_decode_work(const DecodeParams& params, uint32_t index) {
  using Shape = DecodeShape<kType, kHeadDim>;
  const DecodeWork work = decode_work(params, index);
  if (params.rows.head_dim < kHeadDim) {
    // What copies leave out must multiply to 0. Joining has written there.
    auto* all = reinterpret_cast<uint4*>(shared_memory());
    for (int i = static_cast<int>(threadIdx.x); i < kDecodeWarps * Shape::kRingBytes / 16;
         i += kDecodeThreads) {
      all[i] = make_uint4(0, 0, 0, 0);
    }
    __syncthreads();
  }
  {
    DecodeWarp<kType, kHeadDim> warp_state;
    attend_split(params, work, warp_state);
    join_warps(params, work, warp_state);
  }
  if (work.item.num_splits > 1) join_splits<Shape>(params, work);
}

template <KvDType kType, int kHeadDim>
__global__ void __launch_bounds__(kDecodeThreads, (DecodeShape<kType, kHeadDim>::kBlocks))
    decode_kernel(const __grid_constant__ DecodeParams params) {
  using Shape = DecodeShape<kType, kHeadDim>;
  auto* note = reinterpret_cast<uint32_t*>(shared_memory() + Shape::kNoteBegin);
  const int row_blocks = (params.rows.group_size + kTileRows - 1) / kTileRows;
  const uint32_t num_work =
      params.header->num_items * static_cast<uint32_t>(params.rows.num_kv_heads * row_blocks);
  uint32_t index = blockIdx.x;
  while (index < num_work) {
    uint32_t next = 0;
    if (threadIdx.x == 0) next = gridDim.x + atomicAdd(&params.header->next_work, 1u);
    run_decode_work<kType, kHeadDim>(params, index);
    if (threadIdx.x == 0) note[0] = next;
    __syncthreads();
    index = note[0];
  }
  if (threadIdx.x == 0) {
    __threadfence();
    if (atomicAdd(&params.header->num_blocks_done, 1u) == gridDim.x - 1) {
      params.header->next_work = 0;
      params.header->num_blocks_done = 0;
    }
  }
}

}  // namespace halley::attention
