// Moves queries to shared memory and outputs back to device memory, concurrently with the MMAs:
// consumers find the queries of their next work tile ready, and continue while the last one's
// outputs are stored.
#pragma once

#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/activation_rows.cuh"
#include "halley/cuda/attention/operand.cuh"
#include "halley/cuda/attention/prefill_shape.cuh"
#include "halley/cuda/ptx/bulk_copy.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/mbarrier.cuh"
#include "halley/cuda/ptx/memory.cuh"

namespace halley::attention {

/// One of `num_warps` warps that move rows, 16 bytes a lane.
template <typename Shape>
struct RowMover {
  static constexpr int kLanes = Shape::kRowBytes / 16;  // of a row
  static constexpr int kRowsPerPass = 32 / kLanes;
  static constexpr int kSlabRows = 16;  // that a warp moves at a time
  static constexpr int kPasses = kSlabRows / kRowsPerPass;
  static constexpr int kPassesAtOnce = min_of(kPasses, 4);  // in flight

  const PrefillParams& params;
  PrefillMemory<Shape> memory;
  int warp, num_warps;
  uint32_t round = 0;  // of the queries that are loaded next

  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int part() { return lane() % kLanes; }

  /// Loads the queries of the next work tile into the next stage, after storing the outputs that
  /// stage holds. Signals full_queries() with the work tile's info; false: there is no work.
  __device__ bool next() {
    const auto stage = static_cast<int>(round % Shape::kQueryStages);
    if (round >= Shape::kQueryStages) store_outputs(round - Shape::kQueryStages);
    PrefillWork work;
    const bool has_work = PrefillSchedule{params}.get(round, work);
    if (has_work) {
      for (int slab = warp; slab < kPrefillRows / kSlabRows; slab += num_warps) {
        if (are_operands()) {
          copy_queries(work, stage, slab * kSlabRows);
        } else {
          load_queries(work, stage, slab * kSlabRows);
        }
      }
      ptx::cp_async_commit_group();
    }
    if (warp == 0 && lane() == 0) {
      WorkInfo info;
      if (has_work) info = info_of(work);
      ptx::st_shared_b32x4(
          memory.work_info(stage),
          make_uint4(static_cast<uint32_t>(info.first_tile), static_cast<uint32_t>(info.end_tile),
                     static_cast<uint32_t>(info.first_position),
                     static_cast<uint32_t>(info.seen_by_all)));
      ptx::st_shared_b32(memory.work_info(stage) + 16, static_cast<uint32_t>(info.first_head));
    }
    ptx::cp_async_wait_group<0>();
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(memory.full_queries(stage));
    ++round;
    return has_work;
  }

  /// Stores the remaining outputs, after next() has returned false.
  __device__ void finish() const {
    for (uint32_t i = round < Shape::kQueryStages ? 0 : round - Shape::kQueryStages; i + 1 < round;
         ++i) {
      store_outputs(i);
    }
  }

 private:
  __device__ WorkInfo info_of(const PrefillWork& work) const {
    const PrefillTiles<Shape> tiles(work.item);
    return {tiles.begin, tiles.end, work.item.num_past_tokens + work.first_token,
            params.rule.window > 0 ? work.item.end - params.rule.window : 0, work.first_head};
  }
  __device__ bool has_part(const PrefillWork& work, int row) const {
    return work.is_row(row) && 8 * part() < params.rows.head_dim;
  }

  /// Whether queries are wgmma operands without conversion.
  __device__ bool are_operands() const {
    return params.activations.q_is_bf16 == (Shape::kOperand == Operand::kBf16) &&
           params.rule.scale > 0;
  }

  __device__ void copy_queries(const PrefillWork& work, int stage, int first_row) const {
#pragma unroll 4
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = first_row + pass * kRowsPerPass + lane() / kLanes;
      const int64_t element =
          work.element(row, params.activations.q_stride, params.rows.head_dim) + 8 * part();
      cp_async<16>(memory.query(stage, row, 16 * part()), params.activations.q + 2 * element,
                   has_part(work, row));
      if (part() == 0) {
        ptx::st_shared_b32(memory.factor(stage, row), __float_as_uint(params.rule.scale));
      }
    }
  }

  __device__ void load_queries(const PrefillWork& work, int stage, int first_row) const {
    for (int begin = 0; begin < kPasses; begin += kPassesAtOnce) {
      Words<16> raw[kPassesAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kPassesAtOnce; ++i) {
        const int row = first_row + (begin + i) * kRowsPerPass + lane() / kLanes;
        if (!has_part(work, row)) continue;
        const int64_t element =
            work.element(row, params.activations.q_stride, params.rows.head_dim);
        raw[i] = Words<16>::load(params.activations.q + 2 * (element + 8 * part()));
      }
#pragma unroll
      for (int i = 0; i < kPassesAtOnce; ++i) {
        const int row = first_row + (begin + i) * kRowsPerPass + lane() / kLanes;
        store_query(stage, row, raw[i]);
      }
    }
  }

  /// Scales the row by a power of two as QueryRow does. Rows and columns that do not exist are
  /// zeros.
  __device__ void store_query(int stage, int row, Words<16> raw) const {
    float2 pairs[4];
    float greatest = 0;
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
    // Queries take the sign of the rule's scale, so that the row's largest score is that of the
    // largest q.k. With a scale of 0 they are 0.
    const float scale = params.rule.scale, power = inverse_power(greatest);
    const float multiplier = scale > 0 ? power : scale < 0 ? -power : 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      raw.words[i] = pack<Shape::kOperand>(pairs[i].x * multiplier, pairs[i].y * multiplier);
    }
    ptx::st_shared_b32x4(memory.query(stage, row, 16 * part()),
                         make_uint4(raw.words[0], raw.words[1], raw.words[2], raw.words[3]));
    if (part() == 0) {
      const float factor = scale == 0 ? 1.0f : fabsf(scale) / power;
      ptx::st_shared_b32(memory.factor(stage, row), __float_as_uint(factor));
    }
  }

  /// Stores the outputs of the work tile of a round, which consumers left where its queries were.
  __device__ void store_outputs(uint32_t of_round) const {
    const auto stage = static_cast<int>(of_round % Shape::kQueryStages);
    PrefillWork work;
    if (!PrefillSchedule{params}.get(of_round, work)) return;
    mbarrier_wait(memory.outputs(stage), of_round / Shape::kQueryStages % 2);
    __syncwarp();
    for (int slab = warp; slab < kPrefillRows / kSlabRows; slab += num_warps) {
#pragma unroll 4
      for (int pass = 0; pass < kPasses; ++pass) {
        const int row = slab * kSlabRows + pass * kRowsPerPass + lane() / kLanes;
        if (!has_part(work, row)) continue;
        const uint4 words = ptx::ld_shared_b32x4(memory.query(stage, row, 16 * part()));
        const int64_t element =
            work.element(row, params.activations.out_stride, params.rows.head_dim);
        *reinterpret_cast<uint4*>(params.activations.out + 2 * (element + 8 * part())) = words;
      }
    }
  }
};

}  // namespace halley::attention
