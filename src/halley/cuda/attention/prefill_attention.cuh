// Attention of prefill chunks: tiles of query rows against all positions that they see.
//
// A block has 128 (or 64) query rows, tokens times heads of one kv head, and goes through the
// positions in ascending tiles at multiples of 64. Its warps share the tiles; each has rows of its
// own, so that a row's sums depend on its position alone. Quantized tiles are decoded in shared
// memory to the integers (or e4m3 numbers) of their codes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/activation_rows.cuh"
#include "halley/cuda/attention/attention_items.h"
#include "halley/cuda/attention/paged_copies.cuh"
#include "halley/cuda/attention/prefill_work.cuh"
#include "halley/cuda/attention/softmax_rows.cuh"

namespace halley::attention {

inline constexpr int kPrefillWarps = 4;
inline constexpr int kPrefillThreads = 32 * kPrefillWarps;
inline constexpr int kPrefillTokens = 64;  // positions of a tile

/// Byte of shared memory for byte `byte` of row `row` of a tile of 16-bit elements: any eight rows
/// of the same chunk, as load_matrices() reads them, are in different banks.
template <int kRowBytes>
constexpr __host__ __device__ int matrix_offset(int row, int byte) {
  return row * kRowBytes + (((byte / 16) ^ (row % 8)) * 16) + byte % 16;
}

/// Sizes of one instance of the kernel.
template <KvDType kType, int kHeadDim>
struct PrefillShape {
  using Rows = KvRows<kType, kHeadDim>;
  static constexpr int kPaddedHeadDim = kHeadDim;
  static constexpr int kRows = prefill_rows(kHeadDim);
  static constexpr int kRowTiles = kRows / kTileRows / kPrefillWarps;  // of a warp
  static constexpr int kMatrixRowBytes = 2 * kHeadDim;
  static constexpr int kMatrixBytes = kPrefillTokens * kMatrixRowBytes;  // keys, or values
  static constexpr bool kIsDecoded = Rows::kHasScales;
  // A stage holds rows as they are in pages, and their scales.
  static constexpr int kRowsBytes = kPrefillTokens * Rows::kRowBytes;
  static constexpr int kStageBytes = 2 * kRowsBytes + (kIsDecoded ? kPrefillTokens * 8 : 0);
  static constexpr int kStages = 2;

  static constexpr int kQueryBytes = kRows * kMatrixRowBytes;
  static constexpr int kStageBegin = kQueryBytes;
  static constexpr int kMatrixBegin = kStageBegin + kStages * kStageBytes;
  static constexpr int kRowFactsBegin = kMatrixBegin + (kIsDecoded ? 2 * kMatrixBytes : 0);
  static constexpr int kSharedBytes = kRowFactsBegin + kRows * 8;
  static constexpr int kBlocks = kSharedBytes > 112 * 1024 ? 1 : 2;  // on a multiprocessor
};

/// Where copies go in a stage: for matrix loads, or as they are.
template <typename Shape>
struct StageLayout {
  using Rows = typename Shape::Rows;
  static constexpr int kTokens = kPrefillTokens / kPrefillWarps;  // of a warp's copies
  static __device__ int key(int row, int byte) {
    if constexpr (Shape::kIsDecoded) return row * Rows::kRowBytes + byte;
    return matrix_offset<Shape::kMatrixRowBytes>(row, byte);
  }
  static __device__ int value(int row, int byte) { return Shape::kRowsBytes + key(row, byte); }
  static __device__ int key_scale(int row) { return 2 * Shape::kRowsBytes + 4 * row; }
  static __device__ int value_scale(int row) { return key_scale(kPrefillTokens + row); }
};

/// All query rows to shared memory, times a power of two each as in QueryRows; then (scale of the
/// row's products, sum of its elements) for each row. Zeros for rows and elements that are not.
template <typename Shape>
__device__ inline void load_queries(const PrefillParams& params, const PrefillWork& work) {
  constexpr int kLanes = Shape::kPaddedHeadDim / 8;  // of a row, 8 elements each
  constexpr Operand kOperand = Shape::Rows::kOperand;
  const int part = static_cast<int>(threadIdx.x) % kLanes;
  auto* facts = reinterpret_cast<float2*>(shared_memory() + Shape::kRowFactsBegin);
  for (int row = static_cast<int>(threadIdx.x) / kLanes; row < Shape::kRows;
       row += kPrefillThreads / kLanes) {
    Words<16> raw = {};
    if (work.is_row(row) && 8 * part < params.rows.head_dim) {
      const int64_t element = work.element(row, params.activations.q_stride, params.rows.head_dim);
      raw = Words<16>::load(params.activations.q + 2 * (element + 8 * part));
    }
    float2 pairs[4];
    float greatest = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = params.activations.q_is_bf16 ? unpack<Operand::kBf16>(raw.words[i])
                                              : unpack<Operand::kF16>(raw.words[i]);
      greatest = fmaxf(greatest, fmaxf(fabsf(pairs[i].x), fabsf(pairs[i].y)));
    }
#pragma unroll
    for (int lanes = 1; lanes < kLanes; lanes *= 2) {
      greatest = fmaxf(greatest, __shfl_xor_sync(0xFFFFFFFFu, greatest, lanes));
    }
    const float multiplier = inverse_power(greatest);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      raw.words[i] = pack<kOperand>(pairs[i].x * multiplier, pairs[i].y * multiplier);
      const float2 rounded = unpack<kOperand>(raw.words[i]);
      sum += rounded.x + rounded.y;
    }
#pragma unroll
    for (int lanes = 1; lanes < kLanes; lanes *= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lanes);
    }
    *reinterpret_cast<uint4*>(shared_memory() +
                              matrix_offset<Shape::kMatrixRowBytes>(row, 16 * part)) =
        make_uint4(raw.words[0], raw.words[1], raw.words[2], raw.words[3]);
    if (part == 0) facts[row] = make_float2(params.rule.scale / multiplier, sum);
  }
}

/// 16 bytes of codes from `from` to f16 in natural order.
template <KvDType kType, int kWords>
__device__ inline void decode_codes(const Words<16>& codes, uint32_t (&pairs)[kWords]) {
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    if constexpr (kType == KvDType::kInt4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // elements i and i + 4 of the word's eight
        const uint32_t both = codes.words[word] >> (8 * half);
        const uint32_t low = low_nibbles(both), high = high_nibbles(both);
        pairs[4 * word + half] = permute_bytes(low, high, 0x5410u);
        pairs[4 * word + half + 2] = permute_bytes(low, high, 0x7632u);
      }
    } else {
      pairs[2 * word] = bytes_to_f16x2<kType, false>(codes.words[word]);
      pairs[2 * word + 1] = bytes_to_f16x2<kType, true>(codes.words[word]);
    }
  }
}

/// A stage's codes, keys and values, to the tiles of f16.
template <KvDType kType, typename Shape>
__device__ inline void decode_stage(uint32_t stage) {
  if constexpr (Shape::kIsDecoded) {
    constexpr int kRowBytes = Shape::Rows::kRowBytes;
    constexpr int kWords = 4 * 16 / Shape::Rows::kBits;
    const uint32_t tiles = shared_address(shared_memory()) + Shape::kMatrixBegin;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * Shape::kRowsBytes / 16;
         i += kPrefillThreads) {
      const int row = i * 16 / kRowBytes;  // values follow keys, in both
      const int byte = i * 16 % kRowBytes;
      uint32_t pairs[kWords];
      decode_codes<kType>(Words<16>::load_shared(stage + 16 * i), pairs);
#pragma unroll
      for (int chunk = 0; chunk < kWords / 4; ++chunk) {
        const int to =
            matrix_offset<Shape::kMatrixRowBytes>(row, byte * 16 / Shape::Rows::kBits + 16 * chunk);
        store_shared_quad(tiles + to, make_uint4(pairs[4 * chunk], pairs[4 * chunk + 1],
                                                 pairs[4 * chunk + 2], pairs[4 * chunk + 3]));
      }
    }
  }
}

/// A warp's rows: kRowTiles tiles of 16.
template <KvDType kType, int kHeadDim>
struct PrefillWarp {
  using Shape = PrefillShape<kType, kHeadDim>;
  using Rows = typename Shape::Rows;
  static constexpr int kRowTiles = Shape::kRowTiles;
  static constexpr int kTiles = kPrefillTokens / 8;
  static constexpr int kRowBytes = Shape::kMatrixRowBytes;

  SoftmaxRows<Rows> softmax[kRowTiles];
  float values[kRowTiles][kHeadDim / 8][4] = {};
  // Positions that some row of the warp sees, and that all rows see.
  int first_of_any, last_of_any, first_of_all, last_of_all;

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int row_of(int tile, int h) {
    const auto warp = static_cast<int>(threadIdx.x / 32);
    return (warp * kRowTiles + tile) * kTileRows + lane() / 4 + 8 * h;
  }

  /// Takes the rows' facts from shared memory.
  __device__ void start(const PrefillParams& params, const PrefillWork& work) {
    const auto* facts = reinterpret_cast<const float2*>(shared_memory() + Shape::kRowFactsBegin);
    first_of_any = kNoPosition;
    last_of_any = -1;
    first_of_all = 0;
    last_of_all = kNoPosition;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = row_of(tile, h);
        const bool is_row = work.is_row(row);
        const int position = work.item.num_past_tokens + work.token(row);
        const bool is_cut = params.rule.window > 0 && position >= params.rule.window;
        SoftmaxRows<Rows>& own = softmax[tile];
        own.first[h] = is_row ? (is_cut ? position - params.rule.window + 1 : 0) : kNoPosition;
        own.last[h] = is_row ? position : -1;
        own.factor[h] = facts[row].x;
        own.query_sum[h] = facts[row].y;
        first_of_any = min(first_of_any, own.first[h]);
        last_of_any = max(last_of_any, own.last[h]);
        first_of_all = max(first_of_all, own.first[h]);
        last_of_all = min(last_of_all, own.last[h]);
      }
    }
    first_of_any = __reduce_min_sync(0xFFFFFFFFu, first_of_any);
    last_of_any = __reduce_max_sync(0xFFFFFFFFu, last_of_any);
    first_of_all = __reduce_max_sync(0xFFFFFFFFu, first_of_all);
    last_of_all = __reduce_min_sync(0xFFFFFFFFu, last_of_all);
  }

  /// Keys and values of kPrefillTokens positions from `position` on. A tile that no row of the warp
  /// sees would change nothing.
  __device__ void add_tile(uint32_t keys, uint32_t scales, int position, const ScoreRule& rule) {
    const int last = position + kPrefillTokens - 1;
    if (position > last_of_any || last < first_of_any) return;
    const bool sees_all = position >= first_of_all && last <= last_of_all;
    float scores[kRowTiles][kTiles][4] = {};
    multiply_keys(keys, scores);
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      float rescale[2];
      softmax[tile].step(scores[tile], position, sees_all, rule, scales, rescale);
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        values[tile][n][0] *= rescale[0];
        values[tile][n][1] *= rescale[0];
        values[tile][n][2] *= rescale[1];
        values[tile][n][3] *= rescale[1];
      }
    }
    add_values(keys + Shape::kMatrixBytes, scores);
  }

  /// out = values / sum.
  __device__ void write(const PrefillParams& params, const PrefillWork& work) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      SoftmaxRows<Rows>& own = softmax[tile];
      own.finish();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = row_of(tile, h);
        if (!work.is_row(row)) continue;
        const int64_t element =
            work.element(row, params.activations.out_stride, params.rows.head_dim);
        const float per_sum = 1.0f / own.sum[h];
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          const int dim = 8 * n + 2 * (lane() % 4);
          if (dim >= params.rows.head_dim) continue;
          const float low = fmaf(values[tile][n][2 * h], own.unit[h], own.zero_sum[h]);
          const float high = fmaf(values[tile][n][2 * h + 1], own.unit[h], own.zero_sum[h]);
          store_pair(params.activations, element + dim, low * per_sum, high * per_sum);
        }
      }
    }
  }

 private:
  static constexpr int kNoPosition = 0x7FFFFFFF;

  __device__ void multiply_keys(uint32_t keys, float (&scores)[kRowTiles][kTiles][4]) const {
    const int matrix = lane() / 8, in_matrix = lane() % 8;
    const uint32_t queries = shared_address(shared_memory());
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        const int row = row_of(tile, 0) - lane() / 4 + matrix % 2 * 8 + in_matrix;
        load_matrices<false>(a[tile],
                             queries + matrix_offset<kRowBytes>(row, 32 * step + matrix / 2 * 16));
      }
#pragma unroll
      for (int pair = 0; pair < kTiles / 2; ++pair) {
        const int token = 16 * pair + matrix / 2 * 8 + in_matrix;
        uint32_t b[4];
        load_matrices<false>(b,
                             keys + matrix_offset<kRowBytes>(token, 32 * step + matrix % 2 * 16));
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          multiply_add<Rows::kOperand>(scores[tile][2 * pair], a[tile], b[0], b[1]);
          multiply_add<Rows::kOperand>(scores[tile][2 * pair + 1], a[tile], b[2], b[3]);
        }
      }
    }
  }

  __device__ void add_values(uint32_t rows, const float (&weights)[kRowTiles][kTiles][4]) {
    const int matrix = lane() / 8, in_matrix = lane() % 8;
#pragma unroll
    for (int step = 0; step < kPrefillTokens / 16; ++step) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        weight_operand<Rows::kOperand>(weights[tile], step, a[tile]);
      }
      const int token = 16 * step + matrix % 2 * 8 + in_matrix;
#pragma unroll
      for (int pair = 0; pair < kHeadDim / 16; ++pair) {
        uint32_t b[4];
        load_matrices<true>(b, rows + matrix_offset<kRowBytes>(token, 32 * pair + matrix / 2 * 16));
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
          multiply_add<Rows::kOperand>(values[tile][2 * pair], a[tile], b[0], b[1]);
          multiply_add<Rows::kOperand>(values[tile][2 * pair + 1], a[tile], b[2], b[3]);
        }
      }
    }
  }
};

template <KvDType kType, int kHeadDim>
__global__ void __launch_bounds__(kPrefillThreads, (PrefillShape<kType, kHeadDim>::kBlocks))
    prefill_kernel(const __grid_constant__ PrefillParams params) {
  using Shape = PrefillShape<kType, kHeadDim>;
  using Layout = StageLayout<Shape>;
  const PrefillWork work = prefill_work(params, blockIdx.x);
  const PagedCopies<Layout> copies{params.rows, params.tables + work.item.table_begin,
                                   work.item.begin, work.item.end, work.kv_head};
  const uint32_t stages = shared_address(shared_memory()) + Shape::kStageBegin;
  const int first_row = static_cast<int>(threadIdx.x / 32) * Layout::kTokens;
  if (params.rows.head_dim < kHeadDim) {  // what copies leave out must multiply to 0
    for (int i = static_cast<int>(threadIdx.x); i < Shape::kStages * Shape::kStageBytes / 16;
         i += kPrefillThreads) {
      store_shared_quad(stages + 16 * i, make_uint4(0, 0, 0, 0));
    }
    __syncthreads();
  }
  const auto start_copies = [&](int tile, int page, int stage) {  // a group, which may be empty
    const int position = tile * kPrefillTokens;
    if (position < work.item.end) {
      copies.start(position + first_row, page, stages + stage * Shape::kStageBytes, first_row);
    }
    close_copy_group();
  };
  const auto page_of = [&](int tile) { return copies.page_of(tile * kPrefillTokens + first_row); };

  int tile = work.item.begin / kPrefillTokens;
  start_copies(tile, page_of(tile), 0);
  int next_page = page_of(tile + 1);
  load_queries<Shape>(params, work);
  __syncthreads();
  PrefillWarp<kType, kHeadDim> warp;
  warp.start(params, work);
  for (int stage = 0; tile * kPrefillTokens < work.item.end; ++tile, stage ^= 1) {
    start_copies(tile + 1, next_page, stage ^ 1);
    next_page = page_of(tile + 2);
    wait_for_copies<1>();
    __syncthreads();
    const uint32_t current = stages + stage * Shape::kStageBytes;
    uint32_t keys = current;
    if constexpr (Shape::kIsDecoded) {
      decode_stage<kType, Shape>(current);
      __syncthreads();
      keys = shared_address(shared_memory()) + Shape::kMatrixBegin;
    }
    warp.add_tile(keys, current + 2 * Shape::kRowsBytes, tile * kPrefillTokens, params.rule);
    __syncthreads();  // all are done with the stage and the tiles
  }
  wait_for_copies<0>();
  warp.write(params, work);
}

}  // namespace halley::attention
