// The grouped product: a fixed grid of blocks that take tiles in turn, and copy the stages of the
// next tile while they multiply the last ones of this.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "halley/cuda/attention/operand.cuh"
#include "halley/cuda/moe/grouped_kernels.h"
#include "halley/cuda/moe/grouped_tables.cuh"
#include "halley/cuda/moe/grouped_tiles.h"
#include "halley/cuda/ops/activate.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/ptx/cp_async.cuh"
#include "halley/cuda/ptx/matrix.cuh"
#include "halley/cuda/ptx/memory.cuh"
#include "halley/cuda/ptx/mma.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

using attention::Operand;

/// Behind the stages in shared memory.
struct GroupedTables {
  const std::byte** weights;  // [E * halves]
  SlotTables slots;

  __host__ __device__ static constexpr int bytes_of(int num_experts, int num_halves) {
    return num_experts * num_halves * 8 + SlotTables::bytes_of(num_experts);
  }
};

/// A thread's copies: one chunk of kXCopies rows of x and kWeightCopies of the weight a stage.
template <typename Shape>
class StageLoader {
 public:
  __device__ StageLoader(const GroupedParams& params, const GroupedTables& tables,
                         const GroupedGrid& grid)
      : params_(params), tables_(tables), grid_(grid), tile_(static_cast<int>(blockIdx.x)) {
    enter_tile();
  }

  __device__ int num_tiles() const {
    return tables_.slots.row_tile_begin[grid_.num_experts] * grid_.output_tiles;
  }

  /// Starts the copies of the next stage, of this tile or the block's next one, as one group; an
  /// empty group behind the last.
  __device__ void start(std::byte* stage) {
    if (tile_ >= 0) {
      const int input = input_ + chunk() * kCopyInputs;
      const int left = 2 * (params_.num_inputs - input);
      const int num_bytes = left < 0 ? 0 : left < 16 ? left : 16;
      const int64_t byte = int64_t{input} * 2;
      // The rows of a thread are swizzled alike: they are multiples of 8 apart.
      constexpr int kCopyBytes = Shape::kCopyRows * kStageRowBytes;
      std::byte* to = stage + stage_offset(row_of(0), chunk());
      const int64_t weight_step =
          weight_output(Shape::kCopyRows, is_gated()) * params_.weight_row_bytes;
#pragma unroll
      for (int i = 0; i < Shape::kWeightCopies; ++i) {
        const bool is_valid = i < num_weight_rows_;
        ptx::cp_async_cg<ptx::L2Prefetch128B>(
            ptx::cvta_to_shared(to + Shape::kXBytes + i * kCopyBytes),
            is_valid ? weight_ + i * weight_step + byte : weight_, is_valid ? num_bytes : 0);
      }
#pragma unroll
      for (int i = 0; i < Shape::kXCopies; ++i) {
        // Rows behind the last fragment are not multiplied.
        if (row_of(i) < padded_slots_) {
          const bool is_valid = x_rows_[i] >= 0;
          ptx::cp_async_cg<ptx::L2Prefetch128B>(
              ptx::cvta_to_shared(to + i * kCopyBytes),
              is_valid ? params_.x + x_rows_[i] * params_.x_row_bytes + byte : params_.x,
              is_valid ? num_bytes : 0);
        }
      }
      input_ += kGroupedInputs;
      if (input_ >= params_.num_inputs) {
        input_ = 0;
        tile_ += static_cast<int>(gridDim.x);
        enter_tile();
      }
    }
    ptx::cp_async_commit_group();
  }

 private:
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int chunk() { return copy_chunk(thread()); }
  __device__ static int row_of(int i) { return copy_row<Shape>(thread(), i); }

  __device__ bool is_gated() const { return params_.epilogue == GroupedEpilogue::kGated; }

  __device__ void enter_tile() {
    if (tile_ >= num_tiles()) {
      tile_ = -1;
      return;
    }
    const GroupedTile tile =
        find_tile(grid_, tables_.slots.expert_begin, tables_.slots.row_tile_begin, tile_);
    padded_slots_ = (tile.num_slots + 15) / 16 * 16;
#pragma unroll
    for (int i = 0; i < Shape::kXCopies; ++i) {
      x_rows_[i] = -1;
      if (row_of(i) < tile.num_slots) {
        const int slot = tile.first_slot + row_of(i);
        x_rows_[i] = params_.slot_row != nullptr ? params_.slot_row[slot] : slot;
      }
    }
    const WeightRows rows = weight_rows_of<Shape>(thread(), tile, params_.num_outputs, is_gated());
    num_weight_rows_ = rows.count;
    weight_ = tables_.weights[is_gated() ? 2 * tile.expert + rows.half : tile.expert];
    if (rows.count > 0) weight_ += rows.first_output * params_.weight_row_bytes;
  }

  const GroupedParams& params_;
  const GroupedTables& tables_;
  const GroupedGrid& grid_;
  int tile_;  // -1: behind the last
  int input_ = 0;
  int padded_slots_ = 0, num_weight_rows_ = 0;
  int x_rows_[Shape::kXCopies];  // -1: behind the slots
  const std::byte* weight_ = nullptr;
};

/// [row fragment][eight outputs]: as multiply_add() has sums.
template <typename Shape>
using WarpSums = float[Shape::kRowFragments][2 * Shape::kOutputPairs][4];

/// All fragments of the warp without a branch between them, or the first `num_fragments`.
template <Operand kOperand, typename Shape, bool kAll>
__device__ inline void multiply_fragments(const std::byte* stage, const ThreadPlace<Shape>& place,
                                          int num_fragments, WarpSums<Shape>& sums) {
  constexpr int kFragmentBytes = 16 * kStageRowBytes;
  const int x_row = place.first_row + x_lane_row(place.lane);
  const int weight_row = place.first_weight_row + weight_lane_row(place.lane);
#pragma unroll
  for (int step = 0; step < kGroupedInputs / 16; ++step) {
    const std::byte* x = stage + stage_offset(x_row, 2 * step + x_lane_chunk(place.lane));
    const std::byte* weights =
        stage + Shape::kXBytes + stage_offset(weight_row, 2 * step + weight_lane_chunk(place.lane));
    uint32_t b[Shape::kOutputPairs][4];
#pragma unroll
    for (int pair = 0; pair < Shape::kOutputPairs; ++pair) {
      ptx::ldmatrix_x4(b[pair], ptx::cvta_to_shared(weights + pair * kFragmentBytes));
    }
#pragma unroll
    for (int i = 0; i < Shape::kRowFragments; ++i) {
      if (!kAll && i >= num_fragments) continue;
      uint32_t a[4];
      ptx::ldmatrix_x4(a, ptx::cvta_to_shared(x + i * kFragmentBytes));
#pragma unroll
      for (int pair = 0; pair < Shape::kOutputPairs; ++pair) {
        ptx::mma_sync<attention::MmaOf<kOperand>>(sums[i][2 * pair], a, b[pair][0], b[pair][1]);
        ptx::mma_sync<attention::MmaOf<kOperand>>(sums[i][2 * pair + 1], a, b[pair][2], b[pair][3]);
      }
    }
  }
}

template <Operand kOperand, typename Shape>
__device__ inline void multiply_stage(const std::byte* stage, const ThreadPlace<Shape>& place,
                                      int num_fragments, WarpSums<Shape>& sums) {
  if (num_fragments == Shape::kRowFragments) {
    multiply_fragments<kOperand, Shape, true>(stage, place, num_fragments, sums);
  } else if (num_fragments > 0) {
    multiply_fragments<kOperand, Shape, false>(stage, place, num_fragments, sums);
  }
}

/// Two neighbours of a row of y, those of them that there are.
template <Operand kOperand>
__device__ inline void store_outputs(const GroupedParams& params, std::byte* row, int output,
                                     float2 values) {
  const uint32_t pair = attention::pack<kOperand>(values.x, values.y);
  auto* to = reinterpret_cast<uint16_t*>(row) + output;
  if (params.is_in_pairs) {
    if (output < params.num_outputs) *reinterpret_cast<uint32_t*>(to) = pair;
    return;
  }
  if (output < params.num_outputs) to[0] = static_cast<uint16_t>(pair & 0xFFFFu);
  if (output + 1 < params.num_outputs) to[1] = static_cast<uint16_t>(pair >> 16);
}

/// Sums of two neighbours with the bias, if there is one.
__device__ inline float2 with_bias(const GroupedParams& params, const float* bias, int output,
                                   float2 sums) {
  if (bias == nullptr) return sums;
  if (output < params.num_outputs) sums.x += bias[output];
  if (output + 1 < params.num_outputs) sums.y += bias[output + 1];
  return sums;
}

__device__ inline float2 activated(Activation activation, float2 x) {
  return {activate(activation, x.x), activate(activation, x.y)};
}

template <Operand kOperand, typename Shape>
__device__ inline void store_tile(const GroupedParams& params, const GroupedTile& tile,
                                  const ThreadPlace<Shape>& place, const WarpSums<Shape>& sums) {
  const bool is_gated = params.epilogue == GroupedEpilogue::kGated;
  const float* biases[2] = {nullptr, nullptr};
  if (params.biases != nullptr) {
    biases[0] = params.biases[is_gated ? 2 * tile.expert : tile.expert];
    if (is_gated) biases[1] = params.biases[2 * tile.expert + 1];
  }
#pragma unroll
  for (int part = 0; part < 2 * Shape::kRowFragments; ++part) {
    const int row = place.row_of_part(part);
    if (row >= tile.num_slots) continue;
    std::byte* to = params.y + (tile.first_slot + row) * params.y_row_bytes;
#pragma unroll
    for (int pair = 0; pair < Shape::kOutputPairs; ++pair) {
      const int output = tile.first_output + place.output_of_pair(pair, is_gated);
      const float* low = sums[part / 2][2 * pair] + part % 2 * 2;
      const float* high = sums[part / 2][2 * pair + 1] + part % 2 * 2;
      float2 first = with_bias(params, biases[0], output, {low[0], low[1]});
      float2 second = {high[0], high[1]};
      if (is_gated) {
        second = with_bias(params, biases[1], output, second);
        first = activated(params.activation, first);
        store_outputs<kOperand>(params, to, output, {first.x * second.x, first.y * second.y});
        continue;
      }
      second = with_bias(params, biases[0], output + 8, second);
      if (params.epilogue == GroupedEpilogue::kActivation) {
        first = activated(params.activation, first);
        second = activated(params.activation, second);
      }
      store_outputs<kOperand>(params, to, output, first);
      store_outputs<kOperand>(params, to, output + 8, second);
    }
  }
}

template <Operand kOperand, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    grouped_gemm_kernel(const __grid_constant__ GroupedParams params) {
  std::byte* memory = attention::shared_memory();
  const bool is_gated = params.epilogue == GroupedEpilogue::kGated;
  const int num_halves = is_gated ? 2 : 1;
  GroupedTables tables;
  tables.weights =
      reinterpret_cast<const std::byte**>(memory + Shape::kStages * Shape::kStageBytes);
  tables.slots.expert_begin =
      reinterpret_cast<int32_t*>(tables.weights + params.num_experts * num_halves);
  tables.slots.row_tile_begin = tables.slots.expert_begin + params.num_experts + 1;
  const int num_weights = params.num_experts * num_halves;
  for (int i = static_cast<int>(threadIdx.x); i < num_weights; i += Shape::kThreads) {
    tables.weights[i] = params.weights[i];
  }
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  fill_tables(params.expert_begin, params.num_experts, Shape::kRows, tables.slots);
  __syncthreads();
  const GroupedGrid grid = {
      .num_experts = params.num_experts,
      .tile_rows = Shape::kRows,
      .tile_outputs = Shape::kWeightRows / num_halves,
      .output_tiles = num_output_tiles(params.num_outputs, is_gated, Shape::kWeightRows)};
  StageLoader<Shape> loader(params, tables, grid);
  for (int stage = 0; stage < Shape::kStages - 1; ++stage) {
    loader.start(memory + stage * Shape::kStageBytes);
  }
  const ThreadPlace<Shape> place(static_cast<int>(threadIdx.x));
  int stage = 0;
  for (int i = static_cast<int>(blockIdx.x); i < loader.num_tiles();
       i += static_cast<int>(gridDim.x)) {
    const GroupedTile tile =
        find_tile(grid, tables.slots.expert_begin, tables.slots.row_tile_begin, i);
    const int num_fragments = place.num_fragments(tile.num_slots);
    WarpSums<Shape> sums = {};
    for (int input = 0; input < params.num_inputs; input += kGroupedInputs) {
      ptx::cp_async_wait_group<Shape::kStages - 2>();
      __syncthreads();
      // Every warp is done with the stage before this one, which is the next to be filled.
      const int filled = stage == 0 ? Shape::kStages - 1 : stage - 1;
      loader.start(memory + filled * Shape::kStageBytes);
      multiply_stage<kOperand>(memory + stage * Shape::kStageBytes, place, num_fragments, sums);
      stage = stage == Shape::kStages - 1 ? 0 : stage + 1;
    }
    store_tile<kOperand>(params, tile, place, sums);
  }
}

template <DType kType, typename Shape>
void launch_grouped(const CudaContext& context, const GroupedParams& params) {
  const bool is_gated = params.epilogue == GroupedEpilogue::kGated;
  constexpr Operand kOperand = kType == DType::kF16 ? Operand::kF16 : Operand::kBf16;
  const auto kernel = grouped_gemm_kernel<kOperand, Shape>;
  const int num_bytes = Shape::kStages * Shape::kStageBytes +
                        GroupedTables::bytes_of(params.num_experts, is_gated ? 2 : 1);
  // No more blocks than there can be tiles: every expert may end in a tile that is not full.
  const int64_t row_tiles_max =
      params.num_slots / Shape::kRows + std::min<int64_t>(params.num_slots, params.num_experts);
  const int64_t tiles_max =
      row_tiles_max * num_output_tiles(params.num_outputs, is_gated, Shape::kWeightRows);
  const int64_t blocks = int64_t{context.device.num_sms} * Shape::kBlocks;
  launch_kernel(context, "grouped_gemm",
                {.grid = dim3(static_cast<unsigned>(std::min(tiles_max, blocks))),
                 .block = dim3(Shape::kThreads),
                 .shared_bytes = static_cast<size_t>(num_bytes)},
                kernel, params);
}

}  // namespace halley::cuda
