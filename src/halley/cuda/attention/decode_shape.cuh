// Sizes of the decode kernel's instances, and its pieces of work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/attention/kv_fragments.cuh"

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
  static constexpr int kJoinStride = kHeadDim + 2 * (kHeadDim / Rows::kValueUnitElements) + 18;
  static constexpr int kJoinBytes = kTileRows * kJoinStride * 4;
  static_assert(kJoinBytes <= kRingBytes);
  static constexpr bool kQueryInShared = kHeadDim > 128;
  static constexpr int kQueryBytes = kQueryInShared ? Rows::kSteps * 32 * 16 : 0;
  // Largest score and sum of each row, of every warp or split.
  static constexpr int kStatBytes = max_of(kDecodeWarps, kNumSplitsMax) * kTileRows * 8;

  static constexpr int kQueryBegin = kDecodeWarps * kRingBytes;
  static constexpr int kStatBegin = kQueryBegin + kQueryBytes;
  static constexpr int kNoteBegin = kStatBegin + kStatBytes;
  static constexpr int kBarrierBegin = kNoteBegin + 16;  // of bulk copies: [warps, stages]
  static constexpr int kSharedBytes = kBarrierBegin + kDecodeWarps * kStages * 8;
  static constexpr int kBlocks =
      kSharedBytes > 110 * 1024 ? 1 : 2;  // on a multiprocessor, at least

  /// Float of a warp's sums for element `dim` of row `row`. Lanes write the same element of units
  /// of values, in some rows; two floats behind a unit and 18 behind a row keep all but two of them
  /// apart in the banks. Even for an even `dim`.
  static constexpr __host__ __device__ int join_offset(int row, int dim) {
    return row * kJoinStride + dim + 2 * (dim / Rows::kValueUnitElements);
  }
};

/// One piece of work: an item, a kv head, and up to kTileRows of its query heads.
struct DecodeWork {
  DecodeItem item;
  int unit = 0;  // among the kv heads' blocks of rows
  int kv_head = 0;
  int first_head = 0;
  int num_rows = 0;
};

/// Kv heads times their blocks of rows.
__device__ inline uint32_t num_decode_units(const DecodeParams& params) {
  const int row_blocks = (params.rows.group_size + kTileRows - 1) / kTileRows;
  return static_cast<uint32_t>(params.rows.num_kv_heads * row_blocks);
}

/// The item of work `index`; some other item where there is no such work.
__device__ inline DecodeItem decode_item(const DecodeParams& params, uint32_t index) {
  return params.items[min(index / num_decode_units(params), params.num_items_max - 1)];
}

__device__ inline DecodeWork decode_work(const DecodeParams& params, const DecodeItem& item,
                                         uint32_t index) {
  const int row_blocks = (params.rows.group_size + kTileRows - 1) / kTileRows;
  DecodeWork work;
  work.item = item;
  work.unit = static_cast<int>(index % num_decode_units(params));
  work.kv_head = work.unit / row_blocks;
  const int first_row = work.unit % row_blocks * kTileRows;
  work.first_head = work.kv_head * params.rows.group_size + first_row;
  work.num_rows = min(kTileRows, params.rows.group_size - first_row);
  return work;
}

}  // namespace halley::attention
