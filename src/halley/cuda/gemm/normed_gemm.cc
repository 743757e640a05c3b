#include "halley/cuda/gemm/normed_gemm.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/normed_arguments.h"
#include "halley/cuda/gemm/streamed_gemm.h"
#include "halley/cuda/gemm/streamed_map.h"

namespace halley::cuda {
namespace {

constexpr int kAlignment = 1024;
constexpr int kRowUnit = 8;  // the swizzle repeats behind them
constexpr int kStripsMax = 4;
constexpr int kStripRowsMax = 64;
/// The last strip, and the last inputs, are read so far behind their end, for sums without use.
constexpr int kReadBehind = kStripRowsMax * kStreamedChunkBytes;
constexpr int kStageBytesMax = 28 << 10;

// Measured on an H200, in decode steps of Llama-3 8B.
/// Where blocks have no more weights, the next kernel's blocks begin beside them.
constexpr int64_t kMediumBlockBytes = 500 << 10;
constexpr int kMediumSharedBytes = 165 << 10;
/// Of weights that are copied before the row is read.
constexpr int kMediumEarlyBytes = 72 << 10;
constexpr int kEarlyBytes = 140 << 10;

}  // namespace

std::optional<NormedPlan> plan_normed(const StreamedShape& shape, const StreamedDevice& device) {
  const int64_t row_bytes = shape.K * bits_of(shape.dtype) / 8;
  if (shape.M != 1 || shape.N == 0 || shape.K > kNormedColumnsMax ||
      (shape.dtype != DType::kF16 && shape.dtype != DType::kBf16) ||
      row_bytes % kStreamedChunkBytes != 0 || choose_streamed(shape, device).split != 1) {
    return std::nullopt;
  }
  NormedPlan plan;
  plan.is_gated = shape.is_gated;
  const int64_t places = shape.is_gated ? shape.N / 2 : shape.N;
  const int strips_max = shape.is_gated ? kStripsMax / 2 : kStripsMax;
  const int64_t rounds =
      ceil_div<int64_t>(places, int64_t{device.num_multiprocessors} * strips_max * kStripRowsMax);
  const int64_t rows = ceil_div<int64_t>(places, device.num_multiprocessors * rounds);
  int strips = 1;
  while (strips * kStripRowsMax < rows) strips *= 2;
  plan.strips = shape.is_gated ? 2 * strips : strips;
  plan.strip_rows = static_cast<int>(round_up<int64_t>(ceil_div<int64_t>(rows, strips), kRowUnit));
  plan.num_tiles = static_cast<int>(ceil_div<int64_t>(places, plan.tile_places()));
  plan.num_blocks = std::min(device.num_multiprocessors, plan.num_tiles);
  plan.num_chunks = static_cast<int>(row_bytes / kStreamedChunkBytes);
  const int chunk_bytes = plan.strip_rows * kStreamedChunkBytes;
  plan.stage_chunks = std::min(plan.num_chunks, kStageBytesMax / chunk_bytes);
  plan.stage_bytes = plan.stage_chunks * chunk_bytes;
  const bool is_medium =
      ceil_div<int64_t>(shape.N, device.num_multiprocessors) * row_bytes <= kMediumBlockBytes;
  const int shared_bytes_max =
      std::min(device.shared_bytes_max, is_medium ? kMediumSharedBytes : device.shared_bytes_max);
  for (plan.num_stages = kStreamedStagesMax; plan.num_stages >= 2; --plan.num_stages) {
    plan.inputs = plan.num_stages * plan.stage_bytes;
    plan.scratch = plan.inputs + static_cast<int>(row_bytes) + kReadBehind;
    plan.barriers = plan.scratch + 32 * 4;
    plan.num_bytes = kAlignment + plan.barriers + (2 * kStreamedStagesMax + 1) * 8;
    if (plan.num_bytes > shared_bytes_max) continue;
    const int early_bytes = is_medium ? kMediumEarlyBytes : kEarlyBytes;
    plan.early_stages = std::clamp(early_bytes / plan.stage_bytes, 1, plan.num_stages);
    return plan;
  }
  return std::nullopt;
}

void normed_gemm(const CudaContext& context, const NormedOperands& operands, Matrix y) {
  const ConstMatrix& w = operands.w;
  const bool is_gated = operands.gate.has_value(), has_block = operands.block.data != nullptr;
  const std::optional<NormedPlan> plan = plan_normed(
      {.dtype = w.dtype, .M = 1, .N = w.num_rows, .K = w.num_cols, .is_gated = is_gated},
      streamed_device(context));
  HALLEY_CHECK(plan.has_value(), w.num_rows, w.num_cols);
  HALLEY_CHECK(y.num_rows == 1 && y.num_cols == w.num_rows / (is_gated ? 2 : 1) &&
                   y.dtype == w.dtype && operands.hidden.num_cols == w.num_cols,
               y.num_rows, y.num_cols, operands.hidden.num_cols);
  HALLEY_CHECK(
      !operands.norm.is_layer_norm &&
          (!has_block ||
           (operands.block.dtype == w.dtype && operands.block.num_cols == w.num_cols &&
            operands.sum.num_cols == w.num_cols && operands.sum.data != operands.hidden.data)),
      operands.block.num_cols, operands.sum.num_cols);
  const NormedArguments args = {.plan = *plan,
                                .norm = operands.norm,
                                .places = static_cast<int>(y.num_cols),
                                .num_inputs = static_cast<int>(w.num_cols),
                                .hidden = operands.hidden.row<float>(0),
                                .block = operands.block.data,
                                .sum = has_block ? operands.sum.row<float>(0) : nullptr,
                                .bias = operands.bias,
                                .activation = operands.gate.value_or(Activation::kSilu),
                                .y = y.data};
  const CUtensorMap map = streamed_map(w, plan->strip_rows, 1);
  (w.dtype == DType::kF16 ? launch_normed_f16 : launch_normed_bf16)(context, map, args);
}

}  // namespace halley::cuda
