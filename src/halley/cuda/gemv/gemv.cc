#include "halley/cuda/gemv/gemv.h"

#include <algorithm>
#include <bit>

#include "halley/base/check.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/gemv/gemv_arguments.h"
#include "halley/cuda/gemv/gemv_planes_launch.h"

namespace halley::cuda {
namespace {

using GemvLaunch = void (*)(const CudaContext& context, const GemvPlan& plan,
                            const GemvArguments& args);

struct GemvType {
  DType x_dtype;
  int bits;
  GemvLaunch launch;
};

constexpr GemvType kTypes[] = {
    {DType::kF16, 8, launch_gemv_8_f16},   {DType::kBf16, 8, launch_gemv_8_bf16},
    {DType::kF16, 3, launch_gemv_3_f16},   {DType::kBf16, 3, launch_gemv_3_bf16},
    {DType::kF16, 2, launch_gemv_2_f16},   {DType::kBf16, 2, launch_gemv_2_bf16},
    {DType::kI8, 2, launch_gemv_2_s8},     {DType::kF16, 1, launch_gemv_1_f16},
    {DType::kBf16, 1, launch_gemv_1_bf16}, {DType::kI8, 1, launch_gemv_1_s8},
};

void check_operands(const GemvWeight& weight, const GemvOperands& operands, const Matrix& y) {
  const ConstMatrix& x = operands.x;
  const GemvShape& shape = weight.shape;
  HALLEY_CHECK(x.num_rows == y.num_rows && x.num_cols == shape.K && y.num_cols == shape.N,
               x.num_rows, x.num_cols, shape.K, shape.N, y.num_rows, y.num_cols);
  const bool is_s8 = x.dtype == DType::kI8;
  HALLEY_CHECK(
      is_s8 == (shape.inputs == GemvInputs::kS8) && is_s8 == (operands.x_scales != nullptr),
      name_of(x.dtype));
  HALLEY_CHECK(x.num_rows == 0 || row_alignment(x) == 16, x.row_stride);
}

/// Of the rows from `begin` on.
GemvArguments arguments_of(const GemvWeight& weight, const GemvOperands& operands, const Matrix& y,
                           int64_t begin, int64_t end) {
  const ConstMatrix& x = operands.x;
  const int64_t element_bytes = bits_of(x.dtype) / 8;
  const Matrix to = y.rows(begin, end);
  return {.weight = gemv_weight_arguments(weight),
          .x = reinterpret_cast<const uint8_t*>(x.rows(begin, end).data),
          .y = to.data,
          .M = static_cast<int>(end - begin),
          .x_row_used_bytes = static_cast<int>(weight.shape.K * element_bytes),
          .N = weight.shape.N,
          .x_row_bytes = x.row_stride * element_bytes,
          .y_stride = to.row_stride,
          .y_dtype = to.dtype,
          .x_scales = operands.x_scales == nullptr ? nullptr : operands.x_scales + begin,
          .bias = operands.bias};
}

}  // namespace

GemvWeightArguments gemv_weight_arguments(const GemvWeight& weight) {
  const GemvShape& shape = weight.shape;
  // Powers of two (why_not_gemv()).
  const int64_t pieces =
      shape.is_grouped() ? std::max<int64_t>(shape.group_size / kGemvPieceInputs, 1) : 1;
  return {.codes = reinterpret_cast<const uint8_t*>(weight.codes.data()),
          .scales = weight.scales.data(),
          .zeros = weight.zeros.num_bytes() == 0 ? nullptr : weight.zeros.data(),
          .scale_dtype = weight.scale_dtype,
          .zero = weight.zero,
          .num_pieces = static_cast<int>(shape.num_pieces()),
          .num_whole_pieces = static_cast<int>(shape.K / kGemvPieceInputs),
          .num_entries = static_cast<int>(shape.num_entries()),
          .groups_of_entry = shape.groups_of_entry(),
          .entry_shift = static_cast<int>(std::bit_width(static_cast<uint64_t>(pieces))) - 1,
          .num_tiles = shape.num_tiles()};
}

void gemv_planned(const CudaContext& context, const GemvWeight& weight,
                  const GemvOperands& operands, const GemvPlan& plan, Matrix y) {
  const ConstMatrix& x = operands.x;
  const GemvShape& shape = weight.shape;
  check_operands(weight, operands, y);
  HALLEY_CHECK(has_gemv_kernel(shape, plan), shape.bits, plan.tiles);
  if (y.num_rows == 0 || y.num_cols == 0) return;
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const GemvType& each) {
    return each.x_dtype == x.dtype && each.bits == shape.bits;
  });
  HALLEY_CHECK(type != std::end(kTypes), name_of(x.dtype), shape.bits);
  for (int64_t begin = 0; begin < x.num_rows; begin += kGemvRowsMax) {
    const int64_t end = std::min(begin + kGemvRowsMax, x.num_rows);
    type->launch(context, plan, arguments_of(weight, operands, y, begin, end));
  }
}

void gemv_by_digits(const CudaContext& context, const GemvWeight& weight,
                    const GemvOperands& operands, const GemvDigitPlan& plan, Matrix y) {
  check_operands(weight, operands, y);
  HALLEY_CHECK(plan.blocks > 0, weight.shape.bits, weight.shape.K, y.num_rows);
  const GemvArguments args = arguments_of(weight, operands, y, 0, y.num_rows);
  if (operands.x.dtype == DType::kF16) {
    launch_gemv_digits_f16(context, weight.shape.bits, plan, args);
  } else {
    launch_gemv_digits_bf16(context, weight.shape.bits, plan, args);
  }
}

void gemv_by_planes(const CudaContext& context, const GemvWeight& weight,
                    const GemvOperands& operands, const GemvPlanePlan& plan, Matrix y) {
  check_operands(weight, operands, y);
  HALLEY_CHECK(plan.blocks > 0, weight.shape.bits, weight.shape.K, y.num_rows);
  const GemvArguments args = arguments_of(weight, operands, y, 0, y.num_rows);
  const int bits = weight.shape.bits;
  switch (operands.x.dtype) {
    case DType::kF16:
      return launch_gemv_planes_f16(context, bits, plan, args);
    case DType::kBf16:
      return launch_gemv_planes_bf16(context, bits, plan, args);
    default:
      return launch_gemv_planes_s8(context, bits, plan, args);
  }
}

void gemv(const CudaContext& context, const GemvWeight& weight, const GemvOperands& operands,
          Matrix y) {
  const CudaDeviceInfo& device = context.device;
  const GemvDevice limits = {.num_sms = device.num_sms,
                             .shared_bytes_max = static_cast<int>(device.shared_bytes_max)};
  const GemvPlanePlan planes = plan_gemv_planes(weight.shape, y.num_rows, limits);
  if (planes.blocks > 0 && y.num_cols > 0) {
    return gemv_by_planes(context, weight, operands, planes, y);
  }
  const GemvDigitPlan digits = plan_gemv_digits(weight.shape, y.num_rows, limits);
  if (digits.blocks > 0 && y.num_cols > 0) {
    return gemv_by_digits(context, weight, operands, digits, y);
  }
  gemv_planned(context, weight, operands, plan_gemv(weight.shape, device.num_sms), y);
}

}  // namespace halley::cuda
