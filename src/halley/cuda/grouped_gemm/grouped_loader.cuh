// Copies into the stages of the grouped GEMM: packed tiles or rows of the weights, and the tokens
// of an expert, gathered on the way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/grouped_gemm/grouped_arguments.h"
#include "halley/cuda/grouped_gemm/grouped_tables.cuh"
#include "halley/cuda/grouped_gemm/grouped_tiles.h"
#include "halley/cuda/ptx/cp_async.cuh"

namespace halley::cuda {

/// Behind the stages in shared memory.
struct QuantizedGroupedTables {
  const uint8_t** data;  // [E * halves]
  SlotTables slots;
  int32_t* token_rows;  // [kTokens] of the tile that is copied; -1: behind the slots

  __host__ __device__ static constexpr int bytes_of(int num_experts, int num_halves,
                                                    int num_tokens) {
    return num_experts * num_halves * 8 + slot_table_bytes(num_experts) + num_tokens * 4;
  }
};

/// The whole GEMM, as every CTA knows it.
struct GroupedProblem {
  const GroupedArguments& args;
  const QuantizedGroupedTables& tables;
  const GroupedGrid& grid;

  __device__ bool is_gated() const { return args.epilogue == GroupedEpilogue::kGated; }
  __device__ int num_tiles() const {
    return tables.slots.row_tile_begin[grid.num_experts] * grid.output_tiles;
  }
  __device__ GroupedTile tile(int index) const {
    return find_tile(grid, tables.slots.expert_begin, tables.slots.row_tile_begin, index);
  }
};

/// Row blocks of a tile alternate between two halves: gate and the other factor of a gated GEMM,
/// otherwise the first and the second half of the tile's outputs.
template <class Shape>
__device__ __forceinline__ int half_begin(bool is_gated, int half) {
  return is_gated ? 0 : half * Shape::kRowBlocks / 2 * kBlockOutputs;
}

/// A thread's copies into stages.
template <GroupedKind kKind, class Shape>
class GroupedStageLoader {
 public:
  __device__ explicit GroupedStageLoader(const GroupedProblem& problem)
      : problem_(problem), tile_(static_cast<int>(blockIdx.x)) {
    enter_tile();
  }

  /// Starts the copies of the next stage, of this tile or the CTA's next one, as one group; an
  /// empty group behind the last.
  __device__ __forceinline__ void start(uint32_t stage) {
    if (tile_ >= 0) {
      copy_weights(stage + static_cast<uint32_t>(weights_offset<Shape>(kKind)));
      copy_tokens(stage);
      if (++chunk_ == problem_.args.num_chunks) {
        chunk_ = 0;
        tile_ += static_cast<int>(gridDim.x);
        enter_tile();
      }
    }
    ptx::cp_async_commit_group();
  }

 private:
  static constexpr int kThreads = Shape::kThreads;
  static constexpr int kBlockPieces = block_bytes(kKind) / kPieceBytes;
  static constexpr int kWeightCopies = Shape::kRowBlocks * kBlockPieces / kThreads;
  /// Row blocks that all threads copy at a time: 2, of which a thread has one half's, or 1.
  static constexpr int kBlocksAtOnce = kThreads / kBlockPieces;
  static_assert(kBlocksAtOnce == 1 || kBlocksAtOnce == 2);
  /// Halves of which a thread copies.
  static constexpr int kHalves = 2 / kBlocksAtOnce;
  static constexpr int kGroupPieces = block_group_bytes(kKind) / kPieceBytes;  // of a row block
  static constexpr int kTileBlocks = kChunkOutputs / kBlockOutputs;            // of a packed tile
  static constexpr int kRowPieces = kChunkInputs / kPieceBytes;  // of a row of 8-bit values

  static constexpr int kTokenBytes = token_bytes(kKind);
  static constexpr int kTokenPieces = kTokenBytes / kPieceBytes;
  static constexpr int kTokensAtOnce = kThreads / kTokenPieces;
  static constexpr int kTokenCopies = Shape::kTokens / kTokensAtOnce;
  static_assert(kTokensAtOnce % 8 == 0 && Shape::kTokens % kTokensAtOnce == 0);

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int token_of(int copy) {
    return thread() / kTokenPieces + copy * kTokensAtOnce;
  }

  __device__ __forceinline__ void copy_weights(uint32_t weights) {
    const GroupedArguments& args = problem_.args;
    if constexpr (is_rows(kKind)) {
      const int num_bytes = bytes_left(chunk_ * kChunkInputs + thread() % kRowPieces * kPieceBytes);
      const uint32_t to =
          weights + static_cast<uint32_t>(swizzled_offset(kChunkInputs, thread() / kRowPieces,
                                                          thread() % kRowPieces));
#pragma unroll
      for (int i = 0; i < kWeightCopies; ++i) {
        const int row = i / 2 * kBlockOutputs;
        const bool is_there = row < rows_left_[i % 2];
        ptx::cp_async_cg<ptx::L2Prefetch128B>(
            to + static_cast<uint32_t>(i * block_bytes(kKind)),
            is_there ? from_[i % 2] + row * args.weight_step_bytes : from_[0],
            is_there ? num_bytes : 0);
      }
      advance(num_bytes > 0 ? kChunkInputs : 0);
    } else {
      const uint32_t to = weights + static_cast<uint32_t>(thread() * kPieceBytes);
#pragma unroll
      for (int i = 0; i < kWeightCopies; ++i) {
        ptx::cp_async_cg<ptx::L2Prefetch128B>(
            to + static_cast<uint32_t>(i * kThreads * kPieceBytes),
            from_[i % kHalves] + i / kHalves * block_bytes(kKind));
      }
      if constexpr (kGroupPieces > 0) {
        constexpr int kPieces = Shape::kRowBlocks * kGroupPieces;
        static_assert(kChunkInputs / 32 * kPieces <= kThreads);
        if (thread() < args.num_groups * kPieces) {
          ptx::cp_async_cg(to + static_cast<uint32_t>(Shape::kRowBlocks * block_bytes(kKind)),
                           group_from_);
        }
        group_from_ += args.weight_step_bytes;
      }
      advance(args.weight_step_bytes);
    }
  }

  __device__ __forceinline__ void advance(int64_t num_bytes) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) from_[half] += num_bytes;
  }

  /// The bytes of a piece that begins at this byte of K inputs.
  __device__ __forceinline__ int bytes_left(int byte) const {
    return min(max(problem_.args.x_row_bytes - byte, 0), kPieceBytes);
  }

  __device__ __forceinline__ void copy_tokens(uint32_t stage) const {
    const GroupedArguments& args = problem_.args;
    const int piece = thread() % kTokenPieces;
    const int byte = chunk_ * kTokenBytes + piece * kPieceBytes;
    const int left = bytes_left(byte);
    const uint8_t* x = args.x + (left > 0 ? byte : 0);
    // The tokens of a thread are swizzled alike: they are multiples of 8 apart.
    const uint32_t to =
        stage + static_cast<uint32_t>(swizzled_offset(kTokenBytes, token_of(0), piece));
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) {
      // Tokens behind the last eight are multiplied as what lies there, and not stored.
      if (token_of(i) >= padded_tokens_) break;
      const int row = problem_.tables.token_rows[token_of(i)];
      ptx::cp_async_cg(to + static_cast<uint32_t>(i * kTokensAtOnce * kTokenBytes),
                       x + max(row, 0) * args.x_stride_bytes, row >= 0 ? left : 0);
    }
  }

  /// The first row block of a half of the tile, of those of its data.
  __device__ __forceinline__ int half_block(const GroupedTile& tile, int half) const {
    const bool is_gated = problem_.is_gated();
    return (tile.first_output + half_begin<Shape>(is_gated, half)) / kBlockOutputs +
           (is_gated && half == 1 ? problem_.args.second_half_block : 0);
  }
  __device__ __forceinline__ const uint8_t* half_data(const GroupedTile& tile, int half) const {
    return problem_.is_gated() ? problem_.tables.data[2 * tile.expert + half]
                               : problem_.tables.data[tile.expert];
  }
  /// The packed tile of row block `block` and the first inputs.
  __device__ __forceinline__ const uint8_t* packed_tile(const GroupedTile& tile, int half,
                                                        int block) const {
    const GroupedArguments& args = problem_.args;
    return half_data(tile, half) +
           int64_t{block / kTileBlocks} * args.num_chunks * args.weight_step_bytes;
  }

  __device__ __forceinline__ void enter_tile() {
    if (tile_ >= problem_.num_tiles()) {
      tile_ = -1;
      return;
    }
    const GroupedTile tile = problem_.tile(tile_);
    padded_tokens_ = (tile.num_slots + 7) / 8 * 8;
#pragma unroll
    for (int i = 0; i < kHalves; ++i) enter_half(tile, i);
    if constexpr (kGroupPieces > 0) enter_groups(tile);
    enter_tokens(tile);
  }

  /// The half that copies i, i + kHalves, ... are of. Row blocks of a packed tile's half are next
  /// to each other, those behind the last output too.
  __device__ __forceinline__ void enter_half(const GroupedTile& tile, int i) {
    const int half = kHalves == 1 ? thread() / kBlockPieces : i;
    const int block = half_block(tile, half);
    if constexpr (is_rows(kKind)) {
      const int row = block * kBlockOutputs + thread() / kRowPieces;
      rows_left_[i] = problem_.args.num_outputs - row;
      from_[i] = half_data(tile, half) + thread() % kRowPieces * kPieceBytes +
                 (rows_left_[i] > 0 ? row : 0) * problem_.args.weight_step_bytes;
    } else {
      from_[i] = packed_tile(tile, half, block) + block % kTileBlocks * block_bytes(kKind) +
                 thread() % kBlockPieces * kPieceBytes;
    }
  }

  /// The thread's piece of the parameters: [groups][row blocks][pieces].
  __device__ __forceinline__ void enter_groups(const GroupedTile& tile) {
    constexpr MixedKind kLayout = mixed_kind(kKind);
    const int place = thread() / kGroupPieces % Shape::kRowBlocks;
    const int group = thread() / kGroupPieces / Shape::kRowBlocks;
    const int block = half_block(tile, place % 2) + place / 2;
    group_from_ = packed_tile(tile, place % 2, block) + chunk_code_bytes(kLayout) +
                  group * group_bytes(kLayout) + block % kTileBlocks * block_group_bytes(kKind) +
                  thread() % kGroupPieces * kPieceBytes;
  }

  /// A warp reads of the table what it writes: a token's pieces are copied by one warp.
  __device__ __forceinline__ void enter_tokens(const GroupedTile& tile) {
    const int32_t* slot_row = problem_.args.slot_row;
    __syncwarp();
    if (thread() % kTokenPieces == 0) {
#pragma unroll
      for (int i = 0; i < kTokenCopies; ++i) {
        const int token = token_of(i), slot = tile.first_slot + token;
        const bool is_there = token < tile.num_slots;
        problem_.tables.token_rows[token] = !is_there             ? -1
                                            : slot_row != nullptr ? slot_row[slot]
                                                                  : slot;
      }
    }
    __syncwarp();
  }

  const GroupedProblem& problem_;
  int tile_;  // -1: behind the last
  int chunk_ = 0;
  int padded_tokens_ = 0;
  const uint8_t* from_[kHalves];
  int rows_left_[kHalves] = {};  // of rows: from the thread's first one on
  const uint8_t* group_from_ = nullptr;
};

}  // namespace halley::cuda
