#include "halley/cuda/weights/cuda_linear_plan.h"

#include <utility>

#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/quant/base/open_section.h"

namespace halley::cuda {
namespace {

GemmProblem problem_of(const OpenSection& section) {
  const WeightDesc& desc = section.desc();
  return {.w_layout = desc.layout,
          .N = section.out_features(),
          .K = section.in_features,
          .group_size = desc.group_size,
          .zero_kind = desc.zero_kind,
          .has_input_perm = desc.has_input_perm,
          .activation = desc.activation};
}

/// Of a section that becomes rows of codes or of numbers.
void plan_rows(const OpenSection& section, const GemmProblem& stored, CudaGemmProblem problem,
               const std::string& why_not_kept, CudaLinearPlan* plan) {
  WeightForm form = weight_form(stored, problem.y_dtype);
  if (!why_not_kept.empty() && !form.is_codes()) form.why_numbers = why_not_kept;
  const ScaleSpan span = form.is_codes() ? ScaleSpan::kRow : ScaleSpan::kNone;
  problem.dtype = form.dtype;
  problem.x_scale = span;
  problem.w_scale = span;
  problem.has_offsets = form.dtype == DType::kI8 && !section.desc().is_symmetric;
  plan->form = describe_form(is_quantized(stored.w_layout) || has_low_precision(stored.w_layout)
                                 ? name_of(stored.w_layout)
                                 : name_of(section.desc().stored_dtype),
                             form);
  plan->device_bytes =
      static_cast<size_t>(stored.N * row_stride_of(form.dtype, stored.K) * bits_of(form.dtype) / 8);
  CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, nullptr);
  plan->kernel = choice.kernel->name;
  plan->rejections = std::move(choice.rejections);
  for (std::string& rejection : choice.few_rows_rejections)
    plan->rejections.push_back(std::move(rejection));
}

}  // namespace

std::vector<CudaLinearPlan> plan_cuda_linear(const QuantScheme& scheme, const TensorSource& source,
                                             const LinearSpec& spec, DType activation_dtype,
                                             LinearUse use) {
  const std::vector<OpenSection> open = open_sections(scheme, source, spec);
  const bool has_bias = !read_bias(source, open).empty();
  std::vector<CudaLinearPlan> plans;
  int64_t begin = 0;
  for (const OpenSection& section : open) {
    const GemmProblem stored = problem_of(section);
    CudaLinearPlan plan;
    plan.name = section.display_name();
    plan.out_features = stored.N;
    plan.in_features = stored.K;
    const MixedForms forms = mixed_forms(stored, activation_dtype, use, /*has_kernels=*/true);
    const TileForm tile = tile_form(stored, activation_dtype, use, /*has_kernels=*/true);
    const GemvForm gemv = gemv_form(stored, activation_dtype, use, /*is_batch_invariant=*/false);
    if (tile != TileForm::kNone) {
      const bool is_nested = tile == TileForm::kNested;
      plan.form = describe_tile(tile, stored);
      plan.kernel = is_nested ? kNestedKernelName : kW4axKernelName;
      plan.has_low_precision = is_nested;
      if (!is_nested) plan.mma_kernel = kW4axMmaKernelName;
      plan.device_bytes = is_nested ? 2 * static_cast<size_t>(stored.N * stored.K)
                                    : static_cast<size_t>(stored.N * stored.K) / 2;
    } else if (!forms.kinds.empty()) {
      const MixedKind kind = forms.kinds.front();
      plan.form = describe_mixed(kind, stored);
      plan.kernel = mixed_kernel_name(kind);
      plan.mma_kernel = mma_kernel_name(kind);
      plan.device_bytes = static_cast<size_t>(
          mixed_bytes(kind, stored.N, stored.K, stored_group_size(stored.K, stored.group_size)));
    } else if (gemv.is_kept) {
      const GemvShape shape = gemv_shape(stored);
      plan.form = describe_gemv(stored, activation_dtype);
      plan.kernel = gemv_kernel_name(shape.bits);
      plan.device_bytes = shape.code_bytes() + (shape.is_grouped() ? shape.group_bytes() : 0);
    } else {
      plan_rows(section, stored,
                {.y_dtype = activation_dtype,
                 .N = stored.N,
                 .K = stored.K,
                 .has_bias = has_bias,
                 .is_y_aligned = begin * bits_of(activation_dtype) % 128 == 0},
                join_reasons(forms.why_not, gemv.why_not), &plan);
    }
    plans.push_back(std::move(plan));
    begin += stored.N;
  }
  return plans;
}

}  // namespace halley::cuda
