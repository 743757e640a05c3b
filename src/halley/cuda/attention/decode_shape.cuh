// Sizes of the decode kernel's instances, the order of tokens in a tile, and pieces of work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/attention_params.h"
#include "halley/cuda/attention/kv_fragments.cuh"

namespace halley::attention {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;

constexpr int tile_tokens(int row_bytes) {
  if (row_bytes >= 256) return 16;
  return row_bytes >= 128 ? 32 : 64;
}

/// One instance of the kernel: a type of the cache, a padded head size, and up to kRows (8 or 16)
/// query heads of a kv head.
///
/// Scores are computed as S^T = K Q^T and outputs as O^T = V^T P^T, so that 8 query heads fill the
/// n8 of m16n8k16, and tokens, or elements of the head, its m16. The order of tokens in a tile is
/// free, as long as weights and values agree: row r of half h of the tile's step n is the token
/// first_token(r) + (2n + h) kTokenStep. Rows of 64 bytes and less alternate between even and odd
/// tokens, in both halves of the banks.
template <KvDType kType, int kHeadDim, int kRows>
struct DecodeShape {
  using Rows = KvRows<kType, kHeadDim>;
  static constexpr KvDType kDType = kType;
  static constexpr int kPaddedHeadDim = kHeadDim;
  static constexpr int kRowsMax = kRows;
  static constexpr int kBlocks8 = kRows / 8;  // of query heads
  static constexpr int kTokens = tile_tokens(Rows::kRowBytes);
  static constexpr int kNumSteps = kTokens / 16;

  static constexpr int kRowsBytes = kTokens * Rows::kRowBytes;  // keys, or values
  static constexpr int kScaleBytes = Rows::kHasScales ? kTokens * 4 : 0;
  static constexpr int kStageBytes = 2 * kRowsBytes + 2 * kScaleBytes;
  static constexpr int kStages = 3;
  static constexpr int kRingBytes = kStages * kStageBytes;

  // Joining warps uses the stage of each that is free: sums of values, [rows, head]. Where there is
  // room, floats behind units of values and behind rows keep lanes apart in the banks.
  static constexpr int join_floats(int unit_pad, int row_pad) {
    return kRows * (kHeadDim + unit_pad * (kHeadDim / Rows::kValueUnitElements) + row_pad);
  }
  static constexpr int kUnitPad = 4 * join_floats(2, 4) <= kStageBytes ? 2 : 0;
  static constexpr int kJoinStride = join_floats(kUnitPad, 2 * kUnitPad) / kRows;
  static_assert(kRows * kJoinStride * 4 <= kStageBytes);

  static constexpr int kStatBegin = kDecodeWarps * kRingBytes;  // float2 [warps, rows]
  static constexpr int kFactorBegin = kStatBegin + kDecodeWarps * kRows * 8;  // [splits, rows]
  static constexpr int kSumBegin = kFactorBegin + static_cast<int>(kNumSplitsMax) * kRows * 4;
  static constexpr int kNoteBegin = kSumBegin + kRows * 4;
  static constexpr int kBarrierBegin = kNoteBegin + 32;  // [warps, stages]
  static constexpr int kSharedBytes = kBarrierBegin + kDecodeWarps * kStages * 8;
  static constexpr int kBlocks = kSharedBytes > 112 * 1024 ? 1 : 2;  // on an SM

  static constexpr int kTokenStep = Rows::kRowBytes <= 64 ? 2 : 1;
  static constexpr __host__ __device__ int first_token(int row) {
    if (kTokenStep == 1) return row * (kTokens / 8);
    return row / 2 * (kTokens / 4) + ((row ^ (row >> 1)) & 1);
  }
  /// Chunks of 16 bytes of a quantized cache's row are exchanged: chunk i stands at i ^ this. `row`
  /// is first_token()'s. Lanes that read keys at a time (rows 2p and 2p + 1), and those that read
  /// values (rows of equal parity), then meet different banks.
  static constexpr __host__ __device__ int exchange_of_row(int row) {
    if (!Rows::kHasScales || Rows::kRowBytes < 64) return 0;
    if (Rows::kRowBytes == 64) return row / 4 * 2;
    return 2 * ((row / 2 + 2 * (row & 1)) & 3);
  }
  static constexpr __host__ __device__ int exchange_of_token(int token) {
    return exchange_of_row(kTokenStep == 1 ? token / (kTokens / 8) : token / (kTokens / 4) * 2);
  }
  /// The same for the tile's bytes from 512 * `pass` on, which are of one row, or of rows of 64
  /// bytes with the same exchange.
  static constexpr __host__ __device__ int exchange_of_pass(int pass) {
    return exchange_of_token(512 * pass / Rows::kRowBytes);
  }
  static constexpr int kValues = kRowsBytes;
  static constexpr int kKeyScales = 2 * kRowsBytes;
  static constexpr int kValueScales = kKeyScales + kScaleBytes;

  /// Float of a warp's sums for element `dim` of row `row`; even for an even `dim`.
  static constexpr __host__ __device__ int join_offset(int row, int dim) {
    return row * kJoinStride + dim + kUnitPad * (dim / Rows::kValueUnitElements);
  }
};

/// One piece of work: an item, a kv head, and up to kRows of its query heads.
struct DecodeWork {
  DecodeItem item;
  int unit = 0;  // among the kv heads' blocks of rows
  int kv_head = 0;
  int first_head = 0;
  int num_rows = 0;
};

/// How the counter of work maps to items and units.
struct DecodeUnits {
  int row_blocks, rows, group_size;
  uint32_t num_units;

  __device__ DecodeUnits(const DecodeParams& params, int rows_max)
      : row_blocks((params.rows.group_size + rows_max - 1) / rows_max),
        rows(rows_max),
        group_size(params.rows.group_size),
        num_units(static_cast<uint32_t>(params.rows.num_kv_heads * row_blocks)) {}

  /// Of work `index`; of some other item where there is no such work.
  __device__ DecodeWork work(const DecodeParams& params, uint32_t index) const {
    DecodeWork work;
    const uint32_t item = min(index / num_units, params.num_items_max - 1);
    work.item = params.items[item];
    work.unit = static_cast<int>(index % num_units);
    work.kv_head = work.unit / row_blocks;
    const int first_row = work.unit % row_blocks * rows;
    work.first_head = work.kv_head * group_size + first_row;
    work.num_rows = min(rows, group_size - first_row);
    return work;
  }
};

}  // namespace halley::attention
