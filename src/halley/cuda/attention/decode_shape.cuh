// Sizes of the decode kernel's instances, the order of tokens in a tile, and the work items.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/attention/kv_fragments.cuh"

namespace halley::attention {

inline constexpr int kDecodeThreads = 32 * kDecodeWarps;

constexpr int tile_tokens(int row_bytes) {
  if (row_bytes >= 256) return 16;
  return row_bytes >= 128 ? 32 : 64;
}

/// The warps that share a work item: all of a CTA, or one alone. Warps that work alone wait for no
/// other one, but an item takes one of them longer.
template <int kWarps>
struct DecodeTeam {
  static_assert(kWarps == kDecodeWarps || kWarps == 1);
  static constexpr int kNumWarps = kWarps;
  static constexpr int kNumThreads = 32 * kWarps;
  static constexpr bool kIsAlone = kWarps == 1;

  /// Index of the team's first warp in its CTA.
  static __device__ int first_warp() { return kIsAlone ? warp_of_cta() : 0; }
  static __device__ int warp_of_cta() { return static_cast<int>(threadIdx.x / 32); }
  static __device__ int warp() { return kIsAlone ? 0 : warp_of_cta(); }
  static __device__ int thread() {
    return static_cast<int>(kIsAlone ? threadIdx.x % 32 : threadIdx.x);
  }
  /// Index among the teams of all CTAs; those of one CTA are far apart.
  static __device__ uint32_t index() {
    return blockIdx.x + static_cast<uint32_t>(first_warp()) * gridDim.x;
  }
  static __device__ uint32_t num_teams() { return kDecodeWarps / kWarps * gridDim.x; }

  static __device__ void sync() {
    if constexpr (kIsAlone) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
  /// A barrier. Returns whether `is_true` of some thread.
  static __device__ bool sync_or(bool is_true) {
    if constexpr (kIsAlone) return __any_sync(0xFFFFFFFFu, is_true);
    return __syncthreads_or(is_true ? 1 : 0) != 0;
  }
};

/// One instance of the kernel: a cache type, a padded head size, up to kRows (8 or 16) query heads
/// of a kv head, and the warps that share a work item.
///
/// The MMAs compute S^T = K Q^T and O^T = V^T P^T, so that 8 query heads fill the n8 of m16n8k16,
/// and tokens (or elements of the head) its m16. Tokens of a tile may be in any order as long as P
/// and V agree: row r of half h of k-step n is the token first_token(r) + (2n + h) kTokenStep. Rows
/// of 64 bytes and less alternate between even and odd tokens, which lie in the two halves of the
/// banks.
template <KvDType kType, int kHeadDim, int kRows, int kTeamWarps>
struct DecodeShape {
  using Rows = KvRows<kType, kHeadDim>;
  using Team = DecodeTeam<kTeamWarps>;
  static constexpr KvDType kDType = kType;
  static constexpr int kPaddedHeadDim = kHeadDim;
  static constexpr int kRowsMax = kRows;
  static constexpr int kN8Tiles = kRows / 8;  // n8 tiles of query heads
  static constexpr int kTokens = tile_tokens(Rows::kRowBytes);
  static constexpr int kNumSteps = kTokens / 16;

  static constexpr int kRowsBytes = kTokens * Rows::kRowBytes;  // keys, or values
  static constexpr int kScaleBytes = Rows::kHasScales ? kTokens * 4 : 0;
  static constexpr int kStageBytes = 2 * kRowsBytes + 2 * kScaleBytes;
  static constexpr int kStages = 3;
  static constexpr int kPipelineBytes = kStages * kStageBytes;

  // The combine stores each warp's unnormalized O, [rows, head], in its free stage. Padding after
  // each value unit and each row avoids bank conflicts where the stage is large enough.
  static constexpr int combine_floats(int unit_pad, int row_pad) {
    return kRows * (kHeadDim + unit_pad * (kHeadDim / Rows::kValueUnitElements) + row_pad);
  }
  static constexpr int kUnitPad = 4 * combine_floats(2, 4) <= kStageBytes ? 2 : 0;
  static constexpr int kCombineStride = combine_floats(kUnitPad, 2 * kUnitPad) / kRows;
  static_assert(kRows * kCombineStride * 4 <= kStageBytes);

  static constexpr int kStatBegin = kDecodeWarps * kPipelineBytes;  // float2 [warps, rows]
  // Factors [splits, rows] and sums [rows] of the combine of splits. A warp alone has them in its
  // free stage.
  static constexpr int kNumFactors = static_cast<int>(kNumSplitsMax) * kRows;
  static constexpr int kFactorBytes = 4 * (kNumFactors + kRows);
  static_assert(kFactorBytes <= kStageBytes);
  static constexpr int kFactorBegin = kStatBegin + kDecodeWarps * kRows * 8;
  static constexpr int kControlBegin = kFactorBegin + kFactorBytes;
  static constexpr int kStageOffsetBegin = kControlBegin + kDecodeWarps * 8;  // int [warps]
  static constexpr int kBarrierBegin = kStageOffsetBegin + kDecodeWarps * 4;  // [warps, stages]
  static constexpr int kSharedBytes = kBarrierBegin + kDecodeWarps * kStages * 8;
  static constexpr int kCtasPerSm =
      kSharedBytes > 112 * 1024 ? 1 : 2;  // minBlocksPerMultiprocessor

  static constexpr int kTokenStep = Rows::kRowBytes <= 64 ? 2 : 1;
  static constexpr __host__ __device__ int first_token(int row) {
    if (kTokenStep == 1) return row * (kTokens / 8);
    return row / 2 * (kTokens / 4) + ((row ^ (row >> 1)) & 1);
  }
  /// Swizzle of a quantized cache's rows: 16-byte chunk i is stored at i ^ this. `row` is that of
  /// first_token(). The lanes that read keys together (rows 2p and 2p + 1), and those that read
  /// values (rows of equal parity), then hit different banks.
  static constexpr __host__ __device__ int swizzle_of_row(int row) {
    if (!Rows::kHasScales || Rows::kRowBytes < 64) return 0;
    if (Rows::kRowBytes == 64) return row / 4 * 2;
    return 2 * ((row / 2 + 2 * (row & 1)) & 3);
  }
  static constexpr __host__ __device__ int swizzle_of_token(int token) {
    return swizzle_of_row(kTokenStep == 1 ? token / (kTokens / 8) : token / (kTokens / 4) * 2);
  }
  /// The same for the tile's bytes from 512 * `pass` on: they belong to one row, or to rows of 64
  /// bytes with equal swizzle.
  static constexpr __host__ __device__ int swizzle_of_pass(int pass) {
    return swizzle_of_token(512 * pass / Rows::kRowBytes);
  }
  static constexpr int kValues = kRowsBytes;
  static constexpr int kKeyScales = 2 * kRowsBytes;
  static constexpr int kValueScales = kKeyScales + kScaleBytes;

  /// Index of the float that holds element `dim` of row `row` in a warp's partial O; even for an
  /// even `dim`.
  static constexpr __host__ __device__ int combine_offset(int row, int dim) {
    return row * kCombineStride + dim + kUnitPad * (dim / Rows::kValueUnitElements);
  }
};

/// One work item: a split, a kv head, and up to kRows of its query heads.
struct DecodeWork {
  DecodeItem item;
  int unit = 0;  // index among the query-head tiles of all kv heads
  int kv_head = 0;
  int first_head = 0;
  int num_rows = 0;
};

/// Maps the work counter to splits and query-head tiles.
struct DecodeUnits {
  int row_tiles, rows, group_size;
  uint32_t num_units;

  __device__ DecodeUnits(const DecodeParams& params, int rows_max)
      : row_tiles((params.rows.group_size + rows_max - 1) / rows_max),
        rows(rows_max),
        group_size(params.rows.group_size),
        num_units(static_cast<uint32_t>(params.rows.num_kv_heads * row_tiles)) {}

  /// The work item `index`; an arbitrary valid one if there is no such index.
  __device__ DecodeWork work(const DecodeParams& params, uint32_t index) const {
    DecodeWork work;
    const uint32_t item = min(index / num_units, params.num_items_max - 1);
    work.item = params.items[item];
    work.unit = static_cast<int>(index % num_units);
    work.kv_head = work.unit / row_tiles;
    const int first_row = work.unit % row_tiles * rows;
    work.first_head = work.kv_head * group_size + first_row;
    work.num_rows = min(rows, group_size - first_row);
    return work;
  }
};

}  // namespace halley::attention
