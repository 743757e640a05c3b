#include "halley/cuda/gemv/gemv.h"

#include <algorithm>
#include <bit>

#include "halley/base/check.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/gemv/gemv_arguments.h"

namespace halley::cuda {
namespace {

/// A kernel's instance for a type of inputs and bits of codes.
template <class Plan>
struct GemvInstance {
  using Launch = void (*)(const CudaContext& context, const Plan& plan, const GemvArguments& args);

  DType x_dtype;
  int bits;
  Launch launch;
};

constexpr GemvInstance<GemvPlan> kInstances[] = {
    {DType::kF16, 8, launch_gemv<GemvF16, 8>},   {DType::kBf16, 8, launch_gemv<GemvBf16, 8>},
    {DType::kF16, 3, launch_gemv<GemvF16, 3>},   {DType::kBf16, 3, launch_gemv<GemvBf16, 3>},
    {DType::kF16, 2, launch_gemv<GemvF16, 2>},   {DType::kBf16, 2, launch_gemv<GemvBf16, 2>},
    {DType::kI8, 2, launch_gemv<GemvS8, 2>},     {DType::kF16, 1, launch_gemv<GemvF16, 1>},
    {DType::kBf16, 1, launch_gemv<GemvBf16, 1>}, {DType::kI8, 1, launch_gemv<GemvS8, 1>},
};
constexpr GemvInstance<GemvDigitPlan> kDigitInstances[] = {
    {DType::kF16, 8, launch_gemv_digits<F16Digits, 8>},
    {DType::kF16, 3, launch_gemv_digits<F16Digits, 3>},
    {DType::kBf16, 8, launch_gemv_digits<Bf16Digits, 8>},
    {DType::kBf16, 3, launch_gemv_digits<Bf16Digits, 3>},
};
constexpr GemvInstance<GemvPlanePlan> kPlaneInstances[] = {
    {DType::kF16, 2, launch_gemv_planes<F16Planes, 2>},
    {DType::kF16, 1, launch_gemv_planes<F16Planes, 1>},
    {DType::kBf16, 2, launch_gemv_planes<Bf16Planes, 2>},
    {DType::kBf16, 1, launch_gemv_planes<Bf16Planes, 1>},
    {DType::kI8, 2, launch_gemv_planes<S8Planes, 2>},
    {DType::kI8, 1, launch_gemv_planes<S8Planes, 1>},
};

template <class Plan, size_t kCount>
typename GemvInstance<Plan>::Launch launch_of(const GemvInstance<Plan> (&instances)[kCount],
                                              DType x_dtype, int bits) {
  for (const GemvInstance<Plan>& instance : instances) {
    if (instance.x_dtype == x_dtype && instance.bits == bits) return instance.launch;
  }
  HALLEY_CHECK(false, name_of(x_dtype), bits);
}

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
  const auto launch = launch_of(kInstances, x.dtype, shape.bits);
  for (int64_t begin = 0; begin < x.num_rows; begin += kGemvRowsMax) {
    const int64_t end = std::min(begin + kGemvRowsMax, x.num_rows);
    launch(context, plan, arguments_of(weight, operands, y, begin, end));
  }
}

void gemv_by_digits(const CudaContext& context, const GemvWeight& weight,
                    const GemvOperands& operands, const GemvDigitPlan& plan, Matrix y) {
  check_operands(weight, operands, y);
  HALLEY_CHECK(plan.blocks > 0, weight.shape.bits, weight.shape.K, y.num_rows);
  const GemvArguments args = arguments_of(weight, operands, y, 0, y.num_rows);
  launch_of(kDigitInstances, operands.x.dtype, weight.shape.bits)(context, plan, args);
}

void gemv_by_planes(const CudaContext& context, const GemvWeight& weight,
                    const GemvOperands& operands, const GemvPlanePlan& plan, Matrix y) {
  check_operands(weight, operands, y);
  HALLEY_CHECK(plan.blocks > 0, weight.shape.bits, weight.shape.K, y.num_rows);
  const GemvArguments args = arguments_of(weight, operands, y, 0, y.num_rows);
  launch_of(kPlaneInstances, operands.x.dtype, weight.shape.bits)(context, plan, args);
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
