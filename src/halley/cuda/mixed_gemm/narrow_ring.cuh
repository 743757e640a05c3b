// What the warps of the kernel for at most eight tokens copy to their own parts of shared memory,
// far ahead.
#pragma once

#include <cstdint>

#include "halley/cuda/gemm/weight_copy.cuh"
#include "halley/cuda/mixed_gemm/narrow_arguments.h"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::cuda {

/// What a warp copies at a time: 128 inputs of all tokens, codes of the strip's rows of 16 outputs
/// and the parameters of their groups.
struct NarrowItem {
  int row = 0;    // of 16 outputs: the first
  int chunk = 0;  // of 128 inputs
};

/// Stages of weights that are copied before the kernel ahead has ended. More of them slow that one
/// down: a decode step of Llama-3 8B took 2.22 ms with two of kU4F16, 2.15 with one, 2.16 with
/// none, of kU4GroupS8 2.25 and 2.16, but of kU4S8 2.05 with two and 2.06 with one (an H200).
constexpr int narrow_early_stages(MixedKind kind) { return kind == MixedKind::kU4S8 ? 2 : 1; }
/// And before the inputs where no kernel is waited for.
constexpr int narrow_first_stages(MixedKind kind) {
  return kind == MixedKind::kU4S8 ? kNarrowStagesMax : 1;
}

/// A warp's ring in shared memory, and what it copies there: chunks `warp`, `warp` + kNarrowWarps
/// and so on of all rows of the block. kInputBytes: of an input that comes with the weights, or 0.
template <MixedKind kKind, int kInputBytes, bool kIsOneGroup>
struct NarrowRing {
  static constexpr int kPieces = kInputBytes == 2 ? 16 : 8;  // of 16 bytes, of a token's chunk
  static constexpr int kCodeBytes = row_code_bytes(kKind);
  /// Of one row of 16 outputs and one group.
  static constexpr int kGroupRowBytes = 8 * group_entry_bytes(kKind);

  const NarrowArguments& args;
  uint8_t* base = nullptr;  // this warp's
  int warp = 0;
  int lane = 0;
  uint32_t barriers = 0;  // of this warp's stages: weights are there
  int row_end = 0;
  NarrowItem ahead;     // what is copied next
  int stage_ahead = 0;  // to where
  /// Rows ahead that lie one behind the other in a chunk: lane 0 copies those of the first chunk,
  /// lane 1 those of the next one.
  int piece_row = 0, piece_rows = 0;
  const uint8_t* piece = nullptr;  // the chunk's start, of chunk 0 of the inputs
  const uint8_t* x = nullptr;
  /// Of s8: 16 bytes of parameters that this lane copies beside the inputs: [group][row][half]. The
  /// copy engine takes longer for pieces this short.
  static constexpr bool kGroupsBesideInputs = kKind == MixedKind::kU4GroupS8;
  const uint8_t* group_piece = nullptr;  // of chunk 0; none: null

  __device__ __forceinline__ uint8_t* stage(int index) const {
    return base + index * args.narrow.stage_bytes;
  }
  __device__ __forceinline__ uint32_t stage_address(int index) const {
    return ptx::cvta_to_shared(base) + static_cast<uint32_t>(index * args.narrow.stage_bytes);
  }
  __device__ __forceinline__ uint32_t barrier(int index) const {
    return barriers + static_cast<uint32_t>(index * 8);
  }
  __device__ __forceinline__ int rows_ahead() const {
    return min(args.narrow.rows, row_end - ahead.row);
  }

  /// At the first chunk of these rows.
  __device__ __forceinline__ void aim(int row) {
    constexpr int kPanelRows = kChunkOutputs / 16;
    ahead = {row, warp};
    const int rows = rows_ahead(), first_rows = min(rows, kPanelRows - row % kPanelRows);
    piece_row = lane == 0 ? row : row + first_rows;
    piece_rows = lane == 0 ? first_rows : lane == 1 ? rows - first_rows : 0;
    const int64_t panel = piece_row / kPanelRows;
    piece = args.weights + panel * args.num_chunks * args.chunk_bytes;
    if constexpr (kGroupsBesideInputs) {
      const int group = lane / 8, group_row = row + lane % 8 / 2;
      const int64_t chunk = int64_t{group_row / kPanelRows} * args.num_chunks;
      const bool is_there = group < num_groups() && lane % 8 / 2 < rows;
      group_piece = args.weights + chunk * args.chunk_bytes + chunk_code_bytes(kKind) +
                    group * group_bytes(kKind) + group_row % kPanelRows * kGroupRowBytes +
                    lane % 2 * 16;
      if (!is_there) group_piece = nullptr;
    }
  }

  /// Of a chunk.
  __device__ __forceinline__ int num_groups() const {
    return kGroupRowBytes == 0 ? 0 : kIsOneGroup ? 1 : kChunkSteps >> args.group_shift;
  }

  __device__ __forceinline__ void advance() {
    ahead.chunk += kNarrowWarps;
    if (ahead.chunk >= args.num_chunks) aim(ahead.row + args.narrow.rows);
    if (++stage_ahead == args.narrow.num_stages) stage_ahead = 0;
  }

  __device__ __forceinline__ void copy_weights() const {
    constexpr int kPanelRows = kChunkOutputs / 16;
    const int rows = rows_ahead();
    if (rows <= 0) return;
    const int groups = kGroupsBesideInputs ? 0 : num_groups();
    const uint32_t full = barrier(stage_ahead);
    if (lane == 0) {
      ptx::mbarrier_arrive_expect_tx(full, rows * (kCodeBytes + groups * kGroupRowBytes));
    }
    __syncwarp();
    if (piece_rows <= 0) return;
    const uint8_t* chunk = piece + int64_t{ahead.chunk} * args.chunk_bytes;
    const int in_chunk = piece_row % kPanelRows, in_stage = piece_row - ahead.row;
    const uint32_t to = stage_address(stage_ahead);
    start_weight_copy(to + static_cast<uint32_t>(in_stage * kCodeBytes),
                      chunk + in_chunk * kCodeBytes, piece_rows * kCodeBytes, full);
    for (int group = 0; group < groups; ++group) {
      const int row = group * args.narrow.rows + in_stage;
      start_weight_copy(
          to + static_cast<uint32_t>(args.narrow.groups + row * kGroupRowBytes),
          chunk + chunk_code_bytes(kKind) + group * group_bytes(kKind) + in_chunk * kGroupRowBytes,
          piece_rows * kGroupRowBytes, full);
    }
  }

  /// Inputs as [piece of 16 bytes][token]: what lies behind K is zero.
  __device__ __forceinline__ void copy_inputs() const {
    if (kInputBytes == 0 || rows_ahead() <= 0) return;
    constexpr int kTokens = 32 / kPieces;  // that a warp copies at a time
    const int piece = lane % kPieces;
    const int begin = ahead.chunk * (kPieces * 16) + piece * 16;
    const int num_bytes = max(0, min(16, args.x_row_bytes - begin));
    const uint8_t* from = x + (num_bytes > 0 ? begin : 0);
    uint32_t to =
        stage_address(stage_ahead) +
        static_cast<uint32_t>(args.narrow.inputs + (piece * args.M + lane / kPieces) * 16);
#pragma unroll 1
    for (int token = lane / kPieces; token < args.M; token += kTokens) {
      ptx::cp_async_cg(to, from, num_bytes);
      to += kTokens * 16;
      from += kTokens * args.x_stride_bytes;
    }
    if (kGroupsBesideInputs && group_piece != nullptr) {
      const int row = lane / 8 * args.narrow.rows + lane % 8 / 2;
      ptx::cp_async_cg(
          stage_address(stage_ahead) +
              static_cast<uint32_t>(args.narrow.groups + row * kGroupRowBytes + lane % 2 * 16),
          group_piece + int64_t{ahead.chunk} * args.chunk_bytes, 16);
    }
  }

  /// Fills the ring. Weights are constant: those of the first stages do not wait for the kernel
  /// ahead.
  template <class Fetch>
  __device__ __forceinline__ void start(int row, const Fetch& fetch_inputs) {
    if (lane < args.narrow.num_stages) ptx::mbarrier_init(barrier(lane), 1);
    ptx::fence_mbarrier_init();
    ptx::fence_proxy_async_shared();
    __syncwarp();
    x = static_cast<const uint8_t*>(args.x) + lane / kPieces * args.x_stride_bytes;
    // Inputs that do not come stage by stage are waited for first.
    const int most = args.starts_early  ? narrow_early_stages(kKind)
                     : kInputBytes == 0 ? 0
                                        : narrow_first_stages(kKind);
    const int num_early = min(most, args.narrow.num_stages);
    aim(row);
    for (int i = 0; i < num_early; ++i) {
      copy_weights();
      advance();
    }
    ptx::griddepcontrol_wait();
    fetch_inputs();
    aim(row);
    stage_ahead = 0;
    for (int i = 0; i < args.narrow.num_stages; ++i) {
      if (i >= num_early) copy_weights();
      copy_inputs();
      ptx::cp_async_commit_group();
      advance();
    }
  }

  /// Waits for the inputs of the oldest stage. Then all lanes may read them.
  __device__ __forceinline__ void wait_for_inputs() const {
    switch (args.narrow.num_stages) {
      case 1:
        ptx::cp_async_wait_group<0>();
        break;
      case 2:
        ptx::cp_async_wait_group<1>();
        break;
      case 3:
        ptx::cp_async_wait_group<2>();
        break;
      default:
        ptx::cp_async_wait_group<3>();
    }
    __syncwarp();
  }

  /// And for its weights.
  __device__ __forceinline__ void wait_for_weights(int oldest, uint32_t parity) const {
    ptx::mbarrier_wait_parity(barrier(oldest), parity);
  }

  /// After the last read of the stage at `stage_ahead`.
  __device__ __forceinline__ void refill() {
    __syncwarp();
    if (rows_ahead() > 0) {
      copy_weights();
      copy_inputs();
      advance();
    }
    ptx::cp_async_commit_group();
  }
};

}  // namespace halley::cuda
