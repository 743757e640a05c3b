#include "halley/cuda/row_gemm/row_gemm.h"

#include <bit>

#include "halley/base/check.h"
#include "halley/cuda/row_gemm/row_arguments.h"

namespace halley::cuda {
namespace {

using RowLaunch = void (*)(const CudaContext& context, const RowArguments& args);

/// In the order of MixedKind, of the kinds that plan_row() takes.
constexpr RowLaunch kLaunches[] = {launch_row_u4_s8, nullptr, launch_row_u4_f16,
                                   launch_row_u4_bf16};

}  // namespace

RowShape row_shape(const MixedWeight& weight, bool has_norm, bool is_gated) {
  return {.kind = weight.kind,
          .N = weight.N,
          .K = weight.K,
          .group_size = weight.group_size,
          .is_gated = is_gated,
          .has_norm = has_norm};
}

void row_gemm(const CudaContext& context, const MixedWeight& weight, const RowOperands& operands,
              Matrix y) {
  const bool is_gated = operands.gate.has_value(), has_norm = operands.norm.has_value();
  const std::optional<RowPlan> plan =
      plan_row(row_shape(weight, has_norm, is_gated), mixed_device(context));
  HALLEY_CHECK(plan.has_value() && context.device.compute_major == 9, weight.kind, weight.N,
               weight.K);
  const ConstMatrix& x = operands.x;
  HALLEY_CHECK(y.num_rows == 1 && y.num_cols == weight.N / (is_gated ? 2 : 1), y.num_rows,
               y.num_cols, weight.N);
  HALLEY_CHECK(!is_gated || y.dtype != DType::kF32, y.dtype);
  HALLEY_CHECK(has_norm ? operands.hidden.num_cols == weight.K && !operands.norm->is_layer_norm &&
                              (x.data == nullptr || (operands.sum.num_cols == weight.K &&
                                                     operands.sum.data != operands.hidden.data))
                        : x.data != nullptr,
               operands.hidden.num_cols, operands.sum.num_cols);
  HALLEY_CHECK(x.data == nullptr || (x.num_rows == 1 && x.num_cols == weight.K &&
                                     (x.dtype == DType::kF16 || x.dtype == DType::kBf16)),
               x.num_rows, x.num_cols, x.dtype);
  RowArguments args;
  args.plan = *plan;
  args.weights = reinterpret_cast<const uint8_t*>(weight.chunks.data());
  args.chunk_bytes = chunk_bytes(weight.kind, weight.group_size);
  args.group_shift = std::countr_zero(static_cast<unsigned>(weight.group_size / kStepInputs));
  args.N = static_cast<int>(weight.N);
  args.row = {.K = static_cast<int>(weight.K),
              .padded_inputs = plan->num_chunks * kChunkInputs,
              .has_norm = has_norm,
              // The norm of the first layer has no x: its numbers are rounded as y's.
              .is_bf16 = (x.data == nullptr ? y.dtype : x.dtype) == DType::kBf16,
              .x = x.data};
  if (has_norm) {
    args.row.norm = *operands.norm;
    args.row.hidden = operands.hidden.row<float>(0);
    args.row.sum = x.data == nullptr ? nullptr : operands.sum.row<float>(0);
  }
  if (is_s8(weight.kind)) {
    const auto* scales = reinterpret_cast<const float*>(weight.scales.data());
    args.quant = operands.quant;
    args.w_scales = scales;
    args.w_offsets = weight.has_offsets ? scales + weight.N : nullptr;
  }
  args.bias = operands.bias;
  args.activation = operands.gate.value_or(Activation::kSilu);
  args.y = y.data;
  args.y_dtype = y.dtype;
  kLaunches[static_cast<size_t>(weight.kind)](context, args);
}

}  // namespace halley::cuda
