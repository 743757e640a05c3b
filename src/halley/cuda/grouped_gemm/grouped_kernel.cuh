// The grouped GEMM of quantized weights: a fixed grid of CTAs that take tiles in turn, and copy the
// stages of the next tile while they multiply the last ones of this. Weights are dequantized in
// registers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "halley/cuda/grouped_gemm/grouped_loader.cuh"
#include "halley/cuda/grouped_gemm/grouped_warp.cuh"
#include "halley/cuda/ptx/barrier.cuh"
#include "halley/cuda/runtime/launch.cuh"

namespace halley::cuda {

template <GroupedKind kKind, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    quantized_grouped_kernel(const __grid_constant__ GroupedArguments args) {
  extern __shared__ uint4 memory[];
  using Warp = GroupedWarp<kKind, Shape>;
  constexpr int kStages = num_stages<Shape>(kKind);
  static_assert(kStages >= 2);
  const auto stage_size = static_cast<uint32_t>(stage_bytes<Shape>(kKind, args.num_groups));
  const int num_halves = args.epilogue == GroupedEpilogue::kGated ? 2 : 1;
  auto* behind = reinterpret_cast<std::byte*>(memory) + kStages * stage_size;
  auto* parts = reinterpret_cast<typename Warp::Sum*>(behind);
  QuantizedGroupedTables tables;
  tables.data = reinterpret_cast<const uint8_t**>(behind + Warp::kPartsBytes);
  tables.slots.expert_begin =
      reinterpret_cast<int32_t*>(tables.data + args.num_experts * num_halves);
  tables.slots.row_tile_begin = tables.slots.expert_begin + args.num_experts + 1;
  tables.token_rows = tables.slots.row_tile_begin + args.num_experts + 1;
  for (int i = static_cast<int>(threadIdx.x); i < args.num_experts * num_halves;
       i += Shape::kThreads) {
    tables.data[i] = reinterpret_cast<const uint8_t*>(args.weights[i].data);
  }
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  fill_tables(args.expert_begin, args.num_experts, Shape::kTokens, tables.slots);
  __syncthreads();
  constexpr int kTileRows = Shape::kRowBlocks * kBlockOutputs;
  const GroupedGrid grid = {
      .num_experts = args.num_experts,
      .tile_rows = Shape::kTokens,
      .tile_outputs = kTileRows / num_halves,
      .output_tiles = num_output_tiles(args.num_outputs, num_halves == 2, kTileRows)};
  const GroupedProblem problem = {args, tables, grid};
  GroupedStageLoader<kKind, Shape> loader(problem);
  const uint32_t stages = ptx::cvta_to_shared(memory);
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) {
    loader.start(stages + static_cast<uint32_t>(stage) * stage_size);
  }
  const Warp warp(args);
  int stage = 0;
  for (int i = static_cast<int>(blockIdx.x); i < problem.num_tiles();
       i += static_cast<int>(gridDim.x)) {
    const GroupedTile tile = problem.tile(i);
    typename Warp::Sums sums = {};
#pragma unroll 1
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      ptx::cp_async_wait_group<kStages - 2>();
      __syncthreads();
      // Every warp is done with the stage before this one, which is the next to be filled.
      const int filled = stage == 0 ? kStages - 1 : stage - 1;
      loader.start(stages + static_cast<uint32_t>(filled) * stage_size);
      const uint32_t from = stages + static_cast<uint32_t>(stage) * stage_size;
      warp.multiply(from, tile.num_slots, sums);
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
    warp.add_parts(parts, sums);
    warp.store(tile, sums);
  }
}

template <GroupedKind kKind, class Shape>
void launch_quantized_grouped(const CudaContext& context, const GroupedArguments& args) {
  const bool is_gated = args.epilogue == GroupedEpilogue::kGated;
  const int num_bytes =
      num_stages<Shape>(kKind) * stage_bytes<Shape>(kKind, args.num_groups) +
      GroupedWarp<kKind, Shape>::kPartsBytes +
      QuantizedGroupedTables::bytes_of(args.num_experts, is_gated ? 2 : 1, Shape::kTokens);
  // No more CTAs than there can be tiles: every expert may end in a tile that is not full.
  const int64_t row_tiles_max =
      args.num_slots / Shape::kTokens + std::min<int64_t>(args.num_slots, args.num_experts);
  const int64_t tiles_max = row_tiles_max * num_output_tiles(args.num_outputs, is_gated,
                                                             Shape::kRowBlocks * kBlockOutputs);
  const int64_t blocks = int64_t{context.device.num_sms} * Shape::kBlocks;
  launch_kernel(context, "quantized_grouped_gemm",
                {.grid = dim3(static_cast<unsigned>(std::min(tiles_max, blocks))),
                 .block = dim3(Shape::kThreads),
                 .shared_bytes = static_cast<size_t>(num_bytes)},
                quantized_grouped_kernel<kKind, Shape>, args);
}

}  // namespace halley::cuda
