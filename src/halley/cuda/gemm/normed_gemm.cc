#include "halley/cuda/gemm/normed_gemm.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/cuda/gemm/normed_arguments.h"
#include "halley/cuda/gemm/row_source.h"
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

std::optional<NormedPlan> plan_normed(const StreamedShape& shape, bool has_norm,
                                      const StreamedDevice& device) {
  const int64_t row_bytes = shape.K * bits_of(shape.dtype) / 8;
  const bool is_coded = shape.dtype == DType::kF8E4M3;
  if (shape.M != 1 || shape.N == 0 || shape.K > (has_norm ? kNormedRowInputsMax : kRowInputsMax) ||
      row_bytes % (is_coded ? 2 * kStreamedChunkBytes : kStreamedChunkBytes) != 0) {
    return std::nullopt;
  }
  // Of numbers, the bits are those of streamed_gemm().
  if (!is_coded && ((shape.dtype != DType::kF16 && shape.dtype != DType::kBf16) || !has_norm ||
                    choose_streamed(shape, device).split != 1)) {
    return std::nullopt;
  }
  NormedPlan plan;
  plan.is_gated = shape.is_gated;
  const int64_t places = shape.is_gated ? shape.N / 2 : shape.N;
  const int strips_max = shape.is_gated ? kStripsMax / 2 : kStripsMax;
  const int64_t rounds =
      ceil_div<int64_t>(places, int64_t{device.num_sms} * strips_max * kStripRowsMax);
  const int64_t rows = ceil_div<int64_t>(places, device.num_sms * rounds);
  int strips = 1;
  while (strips * kStripRowsMax < rows) strips *= 2;
  plan.strips = shape.is_gated ? 2 * strips : strips;
  plan.strip_rows = static_cast<int>(round_up<int64_t>(ceil_div<int64_t>(rows, strips), kRowUnit));
  plan.num_tiles = static_cast<int>(ceil_div<int64_t>(places, plan.tile_places()));
  plan.num_blocks = std::min(device.num_sms, plan.num_tiles);
  plan.num_chunks = static_cast<int>(row_bytes / kStreamedChunkBytes);
  const int chunk_bytes = plan.strip_rows * kStreamedChunkBytes;
  plan.stage_chunks = std::min(plan.num_chunks, kStageBytesMax / chunk_bytes);
  if (is_coded) plan.stage_chunks &= ~1;  // two of them are summed
  plan.stage_bytes = plan.stage_chunks * chunk_bytes;
  const bool is_medium =
      ceil_div<int64_t>(shape.N, device.num_sms) * row_bytes <= kMediumBlockBytes;
  const int shared_bytes_max =
      std::min(device.shared_bytes_max, is_medium ? kMediumSharedBytes : device.shared_bytes_max);
  for (plan.num_stages = kStreamedStagesMax; plan.num_stages >= 2; --plan.num_stages) {
    plan.inputs = plan.num_stages * plan.stage_bytes;
    plan.scratch = plan.inputs + static_cast<int>(row_bytes) + kReadBehind;
    plan.barriers = plan.scratch + kRowScratchWords * 4;
    plan.num_bytes = kAlignment + plan.barriers + (2 * kStreamedStagesMax + 1) * 8;
    if (plan.num_bytes > shared_bytes_max) continue;
    const int early_bytes = is_medium ? kMediumEarlyBytes : kEarlyBytes;
    plan.early_stages = std::clamp(early_bytes / plan.stage_bytes, 1, plan.num_stages);
    return plan;
  }
  return std::nullopt;
}

void normed_gemm(const CudaContext& context, const NormedOperands& operands, Matrix y) {
  const ConstMatrix &w = operands.w, &x = operands.x;
  const bool is_gated = operands.gate.has_value(), has_norm = operands.norm.has_value();
  const std::optional<NormedPlan> plan = plan_normed(
      {.dtype = w.dtype, .M = 1, .N = w.num_rows, .K = w.num_cols, .is_gated = is_gated}, has_norm,
      streamed_device(context));
  HALLEY_CHECK(plan.has_value(), w.num_rows, w.num_cols);
  const bool is_coded = w.dtype == DType::kF8E4M3;
  HALLEY_CHECK(
      y.num_rows == 1 && y.num_cols == w.num_rows / (is_gated ? 2 : 1) &&
          (is_coded ? y.dtype == DType::kF16 || y.dtype == DType::kBf16 : y.dtype == w.dtype),
      y.num_rows, y.num_cols, y.dtype);
  HALLEY_CHECK(x.data == nullptr ? has_norm : x.dtype == y.dtype && x.num_cols == w.num_cols,
               x.dtype, x.num_cols);
  HALLEY_CHECK(
      !has_norm || (!operands.norm->is_layer_norm && operands.hidden.num_cols == w.num_cols &&
                    (x.data == nullptr || (operands.sum.num_cols == w.num_cols &&
                                           operands.sum.data != operands.hidden.data))),
      operands.hidden.num_cols, operands.sum.num_cols);
  HALLEY_CHECK(!is_coded || operands.scales.w_offsets == nullptr);
  NormedArguments args = {.plan = *plan,
                          .places = static_cast<int>(y.num_cols),
                          .row = {.K = static_cast<int>(w.num_cols),
                                  .padded_inputs = static_cast<int>(w.num_cols),
                                  .has_norm = has_norm,
                                  .is_bf16 = y.dtype == DType::kBf16,
                                  .x = x.data},
                          .quant = operands.quant,
                          .scales = operands.scales,
                          .bias = operands.bias,
                          .activation = operands.gate.value_or(Activation::kSilu),
                          .y = y.data};
  if (has_norm) {
    args.row.norm = *operands.norm;
    args.row.hidden = operands.hidden.row<float>(0);
    args.row.sum = x.data == nullptr ? nullptr : operands.sum.row<float>(0);
  }
  const CUtensorMap map = streamed_map(w, plan->strip_rows, 1);
  const bool is_bf16 = args.row.is_bf16;
  (w.dtype == DType::kF16    ? launch_normed_of<ptx::WgmmaF16, __half>
   : w.dtype == DType::kBf16 ? launch_normed_of<ptx::WgmmaBf16, __nv_bfloat16>
   : is_bf16                 ? launch_normed_of<ptx::WgmmaE4m3, __nv_bfloat16>
                             : launch_normed_of<ptx::WgmmaE4m3, __half>)(context, map, args);
}

}  // namespace halley::cuda
