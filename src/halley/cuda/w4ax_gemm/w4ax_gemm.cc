#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

#include <algorithm>
#include <array>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/tensor_map.h"
#include "halley/cuda/w4ax_gemm/w4ax_arguments.h"
#include "halley/cuda/w4ax_gemm/w4ax_launch.h"
#include "halley/cuda/w4ax_gemm/w4ax_narrow.h"

namespace halley::cuda {
namespace {

/// Times fitted to those of all tiles and of the layers of Llama-3.
constexpr std::array<TimedTile, 4> kTiles = {{
    {{16, w4ax_blocks(16)}, 0.24, 0.5, 3, 1.4},
    {{32, w4ax_blocks(32)}, 0.28, 0.7, 3, 1.4},
    {{64, w4ax_blocks(64)}, 0.37, 1.2, 3, 1.5},
    {{128, w4ax_blocks(128)}, 0.63, 1.0, 4, 1.5},
}};
constexpr TileFamily kFamily = {.name = "w4ax",
                                .tiles = kTiles,
                                .stage_inputs = kW4axInputs,
                                .weight_bits = 4.25,
                                .stage = w4ax_stage};
constexpr std::array<W4axLaunch, kTiles.size()> kLaunches = {launch_w4ax<16>, launch_w4ax<32>,
                                                             launch_w4ax<64>, launch_w4ax<128>};
/// Of fewer tokens all products are narrow, of so many those of small layers.
constexpr int64_t kNarrowBelow = 4;
static_assert(kW4axNarrowTokens == kNarrowTokens);

void check_operands(const CudaContext& context, const W4axWeight& weight,
                    const W4axOperands& operands, Matrix y) {
  if (context.device.compute_major != 9 || context.device.compute_minor != 0) {
    throw UnsupportedError(str("products of W4Ax: expected compute capability 9.0, got ",
                               context.device.compute_major, ".", context.device.compute_minor,
                               ". Use a kernel that decodes at load."));
  }
  const ConstMatrix& x = operands.x;
  HALLEY_CHECK(x.dtype == DType::kI8, x.dtype);
  HALLEY_CHECK(x.num_cols == weight.K && y.num_cols == weight.N && x.num_rows == y.num_rows,
               x.num_rows, x.num_cols, y.num_rows, y.num_cols, weight.N, weight.K);
  HALLEY_CHECK(has_wide_rows(x), x.row_stride);
  HALLEY_CHECK(operands.x_scales != nullptr && operands.x_scales_pitch >= x.num_rows &&
                   operands.x_scales_pitch % kW4axTokenPadding == 0,
               operands.x_scales_pitch, x.num_rows);
}

}  // namespace

W4axWeight::W4axWeight(const CudaContext& context, int64_t num_outputs, int64_t num_inputs)
    : N(num_outputs),
      K(num_inputs),
      codes(static_cast<size_t>(w4ax_code_bytes(N, K)), "a 4-bit weight"),
      scales(static_cast<size_t>(w4ax_scale_bytes(N, K)), "scales of a 4-bit weight"),
      counters(size_t{kTileCounters} * sizeof(uint32_t), "counters of a weight") {
  HALLEY_CHECK(N >= 1 && K >= 1, N, K);
  for (const DeviceBuffer* buffer : {&codes, &scales, &counters}) {
    check_cuda(cudaMemsetAsync(buffer->data(), 0, buffer->num_bytes(), context.stream.get()),
               "a 4-bit weight");
  }
}

int64_t W4axWeight::num_blocks() const { return w4ax_blocks_of(K); }
int64_t W4axWeight::scales_pitch() const { return w4ax_scales_pitch(N); }

const TileFamily& w4ax_family() { return kFamily; }

void w4ax_gemm(const CudaContext& context, const W4axWeight& weight, const W4axOperands& operands,
               Matrix y) {
  if (y.num_rows == 0) return;
  if (is_w4ax_narrow(context, weight, y.num_rows)) {
    return w4ax_gemm_narrow(context, weight, operands, y);
  }
  const ProductShape shape = {.M = y.num_rows, .N = weight.N, .K = weight.K};
  w4ax_gemm_planned(context, weight, operands, plan_tiles(w4ax_family(), shape, context.device), y);
}

bool is_w4ax_narrow(const CudaContext& context, const W4axWeight& weight, int64_t M) {
  // All tokens are read by every SM, once for each of its passes.
  const bool is_one_pass = weight.N <= int64_t{16 * kNarrowRows} * context.device.num_sms;
  return M < kNarrowBelow || (M == kNarrowBelow && is_one_pass);
}

void w4ax_gemm_narrow(const CudaContext& context, const W4axWeight& weight,
                      const W4axOperands& operands, Matrix y) {
  if (y.num_rows == 0) return;
  check_operands(context, weight, operands, y);
  HALLEY_CHECK(y.num_rows <= kW4axNarrowTokens, y.num_rows);
  const auto M = static_cast<int>(y.num_rows);
  const auto rows = static_cast<int>(ceil_div<int64_t>(weight.N, 16));
  const auto num_chunks = static_cast<int>(weight.num_blocks());
  const int num_blocks = std::min(rows, context.device.num_sms);
  const W4axNarrow narrow = w4ax_narrow_that_fits(
      M, ceil_div(rows, num_blocks), num_chunks, static_cast<int>(context.device.shared_bytes_max));
  W4axNarrowArguments args;
  args.w_scales = reinterpret_cast<const float*>(weight.scales.data());
  args.w_scales_pitch = weight.scales_pitch();
  args.x_scales = operands.x_scales;
  args.x_scales_pitch = operands.x_scales_pitch;
  args.scales = narrow.scales;
  args.token_scales = narrow.token_scales;
  args.product = {.weights = reinterpret_cast<const uint8_t*>(weight.codes.data()),
                  .chunk_bytes = kW4axChunkBytes,
                  .num_chunks = num_chunks,
                  .num_blocks = num_blocks,
                  .block_rows = rows / num_blocks,
                  .longer_blocks = rows % num_blocks,
                  .narrow = narrow.shared,
                  .M = M,
                  .N = static_cast<int>(weight.N),
                  .x = operands.x.data,
                  .x_stride_bytes = operands.x.row_stride,
                  .x_row_bytes = static_cast<int>(weight.K),
                  .scales = {},
                  .bias = operands.bias,
                  .y = y.data,
                  .y_dtype = y.dtype,
                  .y_stride = y.row_stride,
                  .starts_early = operands.starts_early};
  launch_w4ax_narrow(context, args);
}

void w4ax_gemm_planned(const CudaContext& context, const W4axWeight& weight,
                       const W4axOperands& operands, const TilePlan& plan, Matrix y) {
  const W4axLaunch launch = kLaunches[static_cast<size_t>(plan.tile_index)];
  w4ax_gemm_launched(context, weight, operands, {.plan = plan, .launch = launch}, y);
}

void w4ax_gemm_launched(const CudaContext& context, const W4axWeight& weight,
                        const W4axOperands& operands, const W4axPlannedLaunch& planned, Matrix y) {
  const TilePlan& plan = planned.plan;
  if (y.num_rows == 0) return;
  check_operands(context, weight, operands, y);
  const size_t mark = context.workspace.mark();
  W4axArguments args;
  args.tile = tile_arguments(plan, {.y = y,
                                    .bias = operands.bias,
                                    .starts_early = operands.starts_early,
                                    .partials = context.workspace.take(plan.workspace_bytes()),
                                    .counters = weight.counters.data()});
  args.codes = reinterpret_cast<const uint8_t*>(weight.codes.data());
  args.w_scales = reinterpret_cast<const float*>(weight.scales.data());
  args.num_panels = static_cast<int>(weight.scales_pitch() / kTileOutputs);
  args.x_scales = operands.x_scales;
  args.x_scales_pitch = operands.x_scales_pitch;
  const CUtensorMap x_map =
      box_map({.matrix = operands.x, .box_cols = kW4axInputs, .box_rows = plan.tile.tokens});
  planned.launch(context, x_map, args);
  context.workspace.release(mark);
}

}  // namespace halley::cuda
