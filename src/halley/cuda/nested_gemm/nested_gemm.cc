#include "halley/cuda/nested_gemm/nested_gemm.h"

#include <array>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/nested_gemm/nested_arguments.h"
#include "halley/cuda/nested_gemm/nested_layout.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/tensor_map.h"

namespace halley::cuda {
namespace {

/// Times fitted to time_nested_gemm() of all tiles and of the layers of Llama-3.
constexpr std::array<TimedTile, 4> kTiles = {{
    {{16}, 0.63, 0.7, 6, 2},
    {{64}, 0.79, 0.1, 6, 1.9},
    {{128}, 0.97, 1.9, 7, 1.5},
    {{256}, 1.44, 3.1, 8, 2},
}};
constexpr TileFamily kFamily = {.name = "nested_f16",
                                .tiles = kTiles,
                                .stage_inputs = kNestedInputs,
                                .weight_bits = 16,
                                .stage = nested_stage};
constexpr std::array<NestedLaunch, kTiles.size()> kLaunches = {
    launch_nested<16>, launch_nested<64>, launch_nested<128>, launch_nested<256>};

void check_operands(const CudaContext& context, const NestedWeight& weight,
                    const NestedOperands& operands, Matrix y) {
  if (context.device.compute_major != 9 || context.device.compute_minor != 0) {
    throw UnsupportedError(
        str("products of weights in two planes: expected compute capability 9.0,"
            " got ",
            context.device.compute_major, ".", context.device.compute_minor,
            ". Use a kernel that joins them at load."));
  }
  const ConstMatrix& x = operands.x;
  HALLEY_CHECK(x.dtype == DType::kF16, x.dtype);
  HALLEY_CHECK(x.num_cols == weight.K() && y.num_cols == weight.N() && x.num_rows == y.num_rows,
               x.num_rows, x.num_cols, y.num_rows, y.num_cols, weight.N(), weight.K());
  HALLEY_CHECK(has_wide_rows(x), x.row_stride);
}

}  // namespace

NestedWeight::NestedWeight(const CudaContext& context, ConstMatrix upper_plane)
    : upper(upper_plane),
      lower(static_cast<size_t>(nested_lower_bytes(upper.num_rows, upper.num_cols)),
            "the lower plane of a weight"),
      counters(size_t{kTileCounters} * sizeof(uint32_t), "counters of a weight") {
  HALLEY_CHECK(upper.dtype == DType::kF8E4M3 && upper.num_rows >= 1 && upper.num_cols >= 1,
               upper.dtype, upper.num_rows, upper.num_cols);
  HALLEY_CHECK(has_wide_rows(upper), upper.row_stride);
  ConstMatrix whole = upper;  // columns are in another order, the last ones too
  whole.num_cols = round_up<int64_t>(upper.num_cols, kNestedInputs);
  HALLEY_CHECK(whole.num_cols <= upper.row_stride, upper.num_cols, upper.row_stride);
  upper_map = box_map({.matrix = whole, .box_cols = kNestedInputs, .box_rows = kTileOutputs});
  check_cuda(cudaMemsetAsync(lower.data(), 0, lower.num_bytes(), context.stream.get()),
             "the lower plane of a weight");
  check_cuda(cudaMemsetAsync(counters.data(), 0, counters.num_bytes(), context.stream.get()),
             "counters of a weight");
}

const TileFamily& nested_family() { return kFamily; }

void nested_gemm_planned(const CudaContext& context, const NestedWeight& weight,
                         const NestedOperands& operands, const TilePlan& plan, Matrix y) {
  if (y.num_rows == 0) return;
  check_operands(context, weight, operands, y);
  const size_t mark = context.workspace.mark();
  NestedArguments args;
  args.tile = tile_arguments(plan, {.y = y,
                                    .bias = operands.bias,
                                    .starts_early = operands.starts_early,
                                    .partials = context.workspace.take(plan.workspace_bytes()),
                                    .counters = weight.counters.data()});
  args.lower = reinterpret_cast<const uint8_t*>(weight.lower.data());
  const NestedMaps maps = {
      .x = box_map(
          {.matrix = operands.x, .box_cols = kNestedInputs / 2, .box_rows = plan.tile.tokens}),
      .upper = weight.upper_map};
  kLaunches[static_cast<size_t>(plan.tile_index)](context, maps, args);
  context.workspace.release(mark);
}

}  // namespace halley::cuda
