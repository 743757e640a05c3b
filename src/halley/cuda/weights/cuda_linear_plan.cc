#include "halley/cuda/weights/cuda_linear_plan.h"

#include <utility>

#include "halley/cuda/weights/device_gemm.h"
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
    GemmDesc desc = hopper_desc(problem_of(section), activation_dtype, use);
    desc.is_symmetric = section.desc().is_symmetric;
    desc.has_bias = has_bias;
    desc.first_output = begin;
    desc.stored_dtype = section.desc().stored_dtype;
    CudaLinearPlan plan = start_plan(section, desc.stored);
    const DeviceGemmChoice choice = choose_device_gemm(desc);
    choice.gemm->plan(*choice.gemm, desc, choice.reasons, &plan);
    plan.form = with_reasons(std::move(plan.form), choice.gemm->layout, choice.reasons);
    plans.push_back(std::move(plan));
    begin += desc.stored.N;
  }
  return plans;
}

}  // namespace halley::cuda
