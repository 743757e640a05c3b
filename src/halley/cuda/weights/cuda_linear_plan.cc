#include "halley/cuda/weights/cuda_linear_plan.h"

#include <utility>

#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/nested_gemm/nested_layout.h"
#include "halley/cuda/w4ax_gemm/w4ax_layout.h"
#include "halley/cuda/weights/device_arrays.h"
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

/// Bytes of the small arrays of a section, in the order in which the loader adds them.
class PlannedArrays {
 public:
  PlannedArrays(const GemmProblem& stored, bool has_bias)
      : N_(static_cast<size_t>(stored.N)), has_bias_(has_bias) {
    if (stored.has_input_perm) sizes_.add(static_cast<size_t>(stored.K) * sizeof(int32_t));
  }
  void add_floats(size_t count) { sizes_.add(count * sizeof(float)); }
  void add_of_outputs() { add_floats(N_); }
  void add_bias() {
    if (has_bias_) add_of_outputs();
  }
  void add_both_biases() {
    if (!has_bias_) return;
    add_of_outputs();
    sizes_.add(N_ * sizeof(uint16_t));
  }
  size_t num_bytes() const { return sizes_.num_bytes(); }

 private:
  size_t N_;
  bool has_bias_;
  ArraySizes sizes_;
};

/// A weight in one of the tile forms.
void plan_tile(const GemmProblem& stored, TileForm tile, bool has_bias, CudaLinearPlan* plan) {
  PlannedArrays arrays(stored, has_bias);
  plan->form = describe_tile(tile, stored);
  if (tile == TileForm::kNested) {
    plan->kernel = kNestedKernelName;
    plan->low_kernel =
        choose_cuda_gemm_kernel(nested_low_problem(stored.N, stored.K, has_bias), nullptr)
            .kernel->name;
    arrays.add_of_outputs();
    arrays.add_both_biases();
    plan->device_bytes = row_bytes_of(DType::kF8E4M3, stored.N, stored.K) +
                         static_cast<size_t>(nested_lower_bytes(stored.N, stored.K));
  } else {
    plan->kernel = kW4axKernelName;
    plan->mma_kernel = kW4axMmaKernelName;
    arrays.add_bias();
    plan->device_bytes = static_cast<size_t>(w4ax_code_bytes(stored.N, stored.K) +
                                             w4ax_scale_bytes(stored.N, stored.K));
  }
  plan->device_bytes += arrays.num_bytes();
}

void plan_mixed(const OpenSection& section, const GemmProblem& stored, MixedKind kind,
                bool has_bias, CudaLinearPlan* plan) {
  PlannedArrays arrays(stored, has_bias);
  arrays.add_bias();
  const bool has_offsets = kind == MixedKind::kU4S8 && !section.desc().is_symmetric;
  plan->form = describe_mixed(kind, stored);
  plan->kernel = mixed_kernel_name(kind);
  plan->mma_kernel = mma_kernel_name(kind);
  plan->device_bytes =
      static_cast<size_t>(
          mixed_bytes(kind, stored.N, stored.K, stored_group_size(stored.K, stored.group_size)) +
          mixed_scale_bytes(kind, stored.N, has_offsets)) +
      arrays.num_bytes();
}

void plan_gemv(const OpenSection& section, const GemmProblem& stored, DType activation_dtype,
               bool has_bias, CudaLinearPlan* plan) {
  PlannedArrays arrays(stored, has_bias);
  arrays.add_both_biases();
  const GemvShape shape = gemv_shape(stored);
  plan->form = describe_gemv(stored, activation_dtype);
  plan->kernel = gemv_kernel_name(shape.bits);
  plan->device_bytes = shape.code_bytes() + shape.scale_bytes() +
                       (section.desc().is_symmetric ? 0 : shape.group_bytes()) + arrays.num_bytes();
}

/// A section that becomes rows of codes or of numbers.
void plan_rows(const OpenSection& section, const GemmProblem& stored, CudaGemmProblem problem,
               const std::string& why_not_kept, CudaLinearPlan* plan) {
  WeightForm form = weight_form(stored, problem.y_dtype);
  if (!why_not_kept.empty() && !form.is_codes()) form.why_numbers = why_not_kept;
  const ScaleSpan span = form.is_codes() ? ScaleSpan::kRow : ScaleSpan::kNone;
  problem.dtype = form.dtype;
  problem.x_scale = span;
  problem.w_scale = span;
  const bool is_shifted = section.desc().is_symmetric && code_shift(stored.w_layout) != 0;
  problem.has_offsets = form.dtype == DType::kI8 && !is_shifted;
  plan->form = describe_form(is_quantized(stored.w_layout) || has_low_precision(stored.w_layout)
                                 ? name_of(stored.w_layout)
                                 : name_of(section.desc().stored_dtype),
                             form);
  PlannedArrays arrays(stored, problem.has_bias);
  if (form.is_codes()) arrays.add_of_outputs();
  if (problem.has_offsets) arrays.add_of_outputs();
  arrays.add_both_biases();
  plan->row_dtype = form.dtype;
  plan->row_stride = row_stride_of(form.dtype, stored.K);
  plan->device_bytes = row_bytes_of(form.dtype, stored.N, stored.K) + arrays.num_bytes();
  CudaGemmChoice choice = choose_cuda_gemm_kernel(problem, nullptr);
  plan->kernel = choice.kernel->name;
  plan->rejections = std::move(choice.rejections);
  for (std::string& rejection : choice.few_rows_rejections)
    plan->rejections.push_back(std::move(rejection));
}

CudaLinearPlan start_plan(const OpenSection& section, const GemmProblem& stored) {
  const WeightDesc& desc = section.desc();
  CudaLinearPlan plan;
  plan.name = section.display_name();
  plan.out_features = stored.N;
  plan.in_features = stored.K;
  plan.activation = desc.activation;
  plan.activation_scale = desc.activation_scale;
  plan.num_s8_inputs = desc.num_s8_inputs;
  plan.s4_clip = desc.s4_clip;
  plan.has_input_perm = desc.has_input_perm;
  return plan;
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
    CudaLinearPlan plan = start_plan(section, stored);
    const MixedForms forms = mixed_forms(stored, activation_dtype, use, /*has_kernels=*/true);
    const TileForm tile = tile_form(stored, activation_dtype, use, /*has_kernels=*/true);
    const GemvForm gemv = gemv_form(stored, activation_dtype, use, /*is_batch_invariant=*/false);
    if (tile != TileForm::kNone) {
      plan_tile(stored, tile, has_bias, &plan);
    } else if (!forms.kinds.empty()) {
      plan_mixed(section, stored, forms.kinds.front(), has_bias, &plan);
    } else if (gemv.is_kept) {
      plan_gemv(section, stored, activation_dtype, has_bias, &plan);
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
