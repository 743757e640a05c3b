#include "halley/cuda/weights/rows_weight.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/lt_problem.h"

namespace halley::cuda {

size_t BoundGemm::workspace_bytes(int64_t M) const {
  size_t most = choice.kernel->workspace_bytes(problem, M);
  for (const CudaGemmKernel* few : choice.for_few_rows) {
    most = std::max(most, few->workspace_bytes(problem, std::min(M, few->rows_max)));
  }
  return round_up(most, DeviceArena::kAlignment);
}

std::string BoundGemm::describe() const {
  std::string text = str(problem.y_dtype, " outputs by ");
  for (const CudaGemmKernel* few : choice.for_few_rows) {
    text += str(few->name, " up to ", few->rows_max, " rows, ");
  }
  text += choice.kernel->name;
  for (const std::string& rejection : choice.few_rows_rejections) text += str(", not ", rejection);
  for (const std::string& rejection : choice.rejections) text += str(", not ", rejection);
  return text;
}

BoundGemms::BoundGemms(CudaGemmProblem problem, DType activation_dtype, bool is_y_aligned,
                       bool is_f32_aligned, CublasLtGemm& lt) {
  const auto bound = [&](DType y_dtype, bool is_aligned) {
    problem.y_dtype = y_dtype;
    problem.is_y_aligned = is_aligned;
    return BoundGemm{.problem = problem, .choice = choose_cuda_gemm_kernel(problem, &lt)};
  };
  for_activations = bound(activation_dtype, is_y_aligned);
  for_f32 = bound(DType::kF32, is_f32_aligned);
}

size_t BoundGemms::workspace_bytes(int64_t M) const {
  return std::max(for_activations.workspace_bytes(M), for_f32.workspace_bytes(M));
}

std::string BoundGemms::describe() const {
  if (for_activations.problem.y_dtype == DType::kF32) return for_activations.describe();
  return str(for_activations.describe(), "; ", for_f32.describe());
}

WeightInput RowsWeight::input(Precision) const {
  return {.dtype = w_.dtype, .has_sums = scales_.w_offsets != nullptr};
}

void RowsWeight::multiply(const CudaContext& context, const WeightOperands& operands,
                          Matrix y) const {
  HALLEY_CHECK(lt_ != nullptr, y.num_cols);
  RowScales scales = scales_;
  scales.x_scales = operands.x_scales.x_scales;
  scales.x_sums = operands.x_scales.x_sums;
  if (static_x_scale_ != nullptr) {
    // A row that is not finite has quantized values of NaN: its scale says nothing more.
    scales.x_scales = static_x_scale_;
    scales.is_x_tensor = true;
  }
  const BoundGemm& gemm = gemms_.for_dtype(y.dtype);
  const CudaGemmKernel& kernel = gemm.choice.kernel_for(operands.x);
  HALLEY_CHECK(kernel.scaling == LtScaling::kNone || row_alignment(y) == 16, kernel.name,
               y.row_stride);
  kernel.launch(*lt_, context, gemm.problem,
                {.x = operands.x,
                 .w = w_,
                 .scales = scales,
                 .bias = operands.bias,
                 .rounded_bias = operands.rounded_bias},
                y);
}

size_t RowsWeight::workspace_bytes(int64_t M, Precision) const {
  return lt_ == nullptr ? 0 : gemms_.workspace_bytes(M);
}

}  // namespace halley::cuda
