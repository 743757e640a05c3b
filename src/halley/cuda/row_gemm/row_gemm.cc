#include "halley/cuda/row_gemm/row_gemm.h"

#include <bit>

#include "halley/base/check.h"
#include "halley/cuda/row_gemm/row_arguments.h"

namespace halley::cuda {
namespace {

using RowLaunch = void (*)(const CudaContext& context, const RowArguments& args);

/// In the order of RowKind.
constexpr RowLaunch kLaunches[] = {nullptr, launch_row<RowKind::kU4S8>, launch_row<RowKind::kU4F16>,
                                   launch_row<RowKind::kU4Bf16>, launch_row<RowKind::kW4ax>};

/// All but the weight, and how it is multiplied.
RowArguments row_arguments(const CudaContext& context, const RowShape& shape,
                           const RowOperands& operands, Matrix y) {
  const bool is_gated = shape.is_gated, has_norm = shape.has_norm;
  const std::optional<RowPlan> plan = plan_row(shape, mixed_device(context));
  HALLEY_CHECK(plan.has_value() && context.device.compute_major == 9, shape.kind, shape.N, shape.K);
  const ConstMatrix& x = operands.x;
  HALLEY_CHECK(y.num_rows == 1 && y.num_cols == shape.N / (is_gated ? 2 : 1), y.num_rows,
               y.num_cols, shape.N);
  HALLEY_CHECK(!is_gated || y.dtype != DType::kF32, y.dtype);
  HALLEY_CHECK(has_norm ? operands.hidden.num_cols == shape.K && !operands.norm->is_layer_norm &&
                              (x.data == nullptr || (operands.sum.num_cols == shape.K &&
                                                     operands.sum.data != operands.hidden.data))
                        : x.data != nullptr,
               operands.hidden.num_cols, operands.sum.num_cols);
  HALLEY_CHECK(x.data == nullptr || (x.num_rows == 1 && x.num_cols == shape.K &&
                                     (x.dtype == DType::kF16 || x.dtype == DType::kBf16)),
               x.num_rows, x.num_cols, x.dtype);
  RowArguments args;
  args.plan = *plan;
  args.N = static_cast<int>(shape.N);
  args.row = {.K = static_cast<int>(shape.K),
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
  args.bias = operands.bias;
  args.activation = operands.gate.value_or(Activation::kSilu);
  args.y = y.data;
  args.y_dtype = y.dtype;
  return args;
}

}  // namespace

RowShape row_shape(const MixedWeight& weight, const RowOperands& operands) {
  return {.kind = row_kind(weight.kind),
          .N = weight.N,
          .K = weight.K,
          .group_size = weight.group_size,
          .is_gated = operands.gate.has_value(),
          .has_norm = operands.norm.has_value()};
}

RowShape row_shape(const W4axWeight& weight, const RowOperands& operands) {
  return {.kind = RowKind::kW4ax,
          .N = weight.N,
          .K = weight.K,
          .is_gated = operands.gate.has_value(),
          .has_norm = operands.norm.has_value(),
          .has_input_perm = operands.quant.input_perm != nullptr};
}

void row_gemm(const CudaContext& context, const MixedWeight& weight, const RowOperands& operands,
              Matrix y) {
  RowArguments args = row_arguments(context, row_shape(weight, operands), operands, y);
  args.weights = reinterpret_cast<const uint8_t*>(weight.chunks.data());
  args.chunk_bytes = chunk_bytes(weight.kind, weight.group_size);
  args.group_shift = std::countr_zero(static_cast<unsigned>(weight.group_size / kStepInputs));
  if (is_s8(weight.kind)) {
    const auto* scales = reinterpret_cast<const float*>(weight.scales.data());
    args.quant = operands.quant;
    args.w_scales = scales;
    args.w_offsets = weight.has_offsets ? scales + weight.N : nullptr;
  }
  kLaunches[static_cast<size_t>(row_kind(weight.kind))](context, args);
}

void row_gemm(const CudaContext& context, const W4axWeight& weight, const RowOperands& operands,
              Matrix y) {
  HALLEY_CHECK(operands.quant.kind == ActivationQuant::kS4S8Block128 &&
                   reinterpret_cast<uintptr_t>(operands.quant.input_perm) % 16 == 0,
               operands.quant.kind);
  RowArguments args = row_arguments(context, row_shape(weight, operands), operands, y);
  args.weights = reinterpret_cast<const uint8_t*>(weight.codes.data());
  args.chunk_bytes = kChunkCodeBytes;
  args.group_shift = std::countr_zero(static_cast<unsigned>(kChunkSteps));
  args.quant = operands.quant;
  args.w_scales = reinterpret_cast<const float*>(weight.scales.data());
  args.w_scales_pitch = weight.scales_pitch();
  kLaunches[static_cast<size_t>(RowKind::kW4ax)](context, args);
}

}  // namespace halley::cuda
