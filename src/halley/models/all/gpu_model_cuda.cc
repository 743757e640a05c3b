#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/weights/cuda_linear_plan.h"
#include "halley/models/all/gpu_model.h"
#include "halley/models/cuda/cuda_decoder.h"

namespace halley {
namespace {

GpuLinearPlan plan_of(cuda::CudaLinearPlan planned) {
  return {.name = std::move(planned.name),
          .out_features = planned.out_features,
          .in_features = planned.in_features,
          .form = std::move(planned.form),
          .kernel = std::move(planned.kernel),
          .mma_kernel = std::move(planned.mma_kernel),
          .device_bytes = planned.device_bytes,
          .rejections = std::move(planned.rejections),
          .has_low_precision = planned.has_low_precision};
}

/// The embedding's table as the output layer.
GpuLinearPlan plan_tied_output(const DecoderConfig& config, const DecoderPart& part,
                               const LinearLoading& loading, DType activation_dtype) {
  const TensorInfo& info = *loading.source.find(part.table_name);
  const cuda::CudaGemmProblem problem = {.dtype = activation_dtype,
                                         .y_dtype = DType::kF32,
                                         .N = config.vocab_size,
                                         .K = config.hidden_size};
  cuda::CudaGemmChoice choice = cuda::choose_cuda_gemm_kernel(problem, nullptr);
  return {.name = info.name,
          .out_features = problem.N,
          .in_features = problem.K,
          .form = str(info.dtype, ", kept in ", activation_dtype),
          .kernel = choice.kernel->name,
          .device_bytes = static_cast<size_t>(problem.N * problem.K * bits_of(problem.dtype) / 8),
          .rejections = std::move(choice.rejections)};
}

/// The kernels that were bound, section by section.
std::vector<GpuLinearPlan> loaded_plans(const cuda::CudaDecoderWeights::PlacedLinear& placed,
                                        std::vector<GpuLinearPlan> planned) {
  const cuda::CudaLinear& linear = *placed.linear;
  HALLEY_CHECK(linear.sections().size() == planned.size(), linear.sections().size());
  for (size_t i = 0; i < planned.size(); ++i) {
    const cuda::CudaLinear::Section& section = linear.sections()[i];
    planned[i].form = section.form;
    planned[i].kernel = section.kernel_name();
    planned[i].rejections = section.for_activations.choice.rejections;
    planned[i].device_bytes = section.device_bytes();
    planned[i].has_low_precision = section.is_nested();
    if (!placed.is_grouped) continue;
    planned[i].kernel = "grouped_gemm";
    planned[i].mma_kernel.clear();
    planned[i].rejections.clear();
  }
  return planned;
}

}  // namespace

std::string why_no_gpu(int ordinal) {
  std::string reason = why_no_cuda();
  if (!reason.empty()) return reason;
  const std::vector<CudaDeviceInfo> devices = list_cuda_devices();
  const auto index = static_cast<size_t>(ordinal);
  return index < devices.size() ? why_not_this_gpu(devices[index]) : "";
}

bool is_built_with_cuda() { return true; }

std::vector<GpuLinearPlan> plan_gpu_part(const DecoderConfig& config, const DecoderPart& part,
                                         const LinearLoading& loading, DType activation_dtype) {
  std::vector<GpuLinearPlan> plans;
  if (part.kind == PartKind::kEmbedding && !config.lm_head) {
    plans.push_back(plan_tied_output(config, part, loading, activation_dtype));
  }
  if (part.kind != PartKind::kLinear) return plans;
  const auto use = part.is_expert ? cuda::LinearUse::kGrouped : cuda::LinearUse::kAlone;
  for (cuda::CudaLinearPlan& planned : cuda::plan_cuda_linear(
           loading.scheme, loading.source, *part.linear, activation_dtype, use)) {
    plans.push_back(plan_of(std::move(planned)));
  }
  return plans;
}

void check_gpu_model(const DecoderConfig& config, DType activation_dtype) {
  const std::string reason = cuda::why_not_on_gpu(config, activation_dtype);
  if (reason.empty()) return;
  throw UnsupportedError(str(config.where, ": expected a model that the GPU can run, got ", reason,
                             ". Use --device cpu."));
}

std::unique_ptr<CausalLm> load_gpu_model(ExecContext& context, const LinearLoading& loading,
                                         const LoadOptions& options, const PartLoaded& on_part,
                                         ModelPlan& plan) {
  auto model = std::make_unique<cuda::CudaDecoder>(
      context, plan.config, loading,
      cuda::CudaDecoderOptions{.ordinal = options.gpu_ordinal,
                               .activation_dtype = plan.activation_dtype,
                               .memory_utilization = options.gpu_memory_utilization,
                               .is_batch_invariant = options.is_batch_invariant},
      on_part);
  const auto linears = model->weights().linears();
  size_t next = 0;
  for (ModelPart& part : plan.parts) {
    if (part.gpu_plans.empty()) continue;
    part.gpu_plans = loaded_plans(linears.at(next), std::move(part.gpu_plans));
    ++next;
  }
  return model;
}

}  // namespace halley
