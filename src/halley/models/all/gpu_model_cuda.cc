#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/experts/cuda_experts.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/runtime/cuda_device.h"
#include "halley/cuda/weights/cuda_linear_plan.h"
#include "halley/cuda/weights/weight_form.h"
#include "halley/models/all/gpu_model.h"
#include "halley/models/all/gpu_tuning.h"
#include "halley/models/cuda/cuda_decoder.h"

namespace halley {
namespace {

GpuLinearPlan plan_of(const cuda::CudaLinearPlan& planned) {
  return {.name = planned.name,
          .out_features = planned.out_features,
          .in_features = planned.in_features,
          .form = planned.form,
          .kernel = planned.kernel,
          .low_kernel = planned.low_kernel,
          .mma_kernel = planned.mma_kernel,
          .device_bytes = planned.device_bytes,
          .rejections = planned.rejections};
}

/// A layer of experts that run together.
void set_grouped(GpuLinearPlan& plan, std::string kernel) {
  plan.kernel = std::move(kernel);
  plan.mma_kernel.clear();
  plan.rejections.clear();
}

/// The experts of one layer: their parts by index, gate_up and down in turn.
class PlannedExperts {
 public:
  void add(size_t part_index, const std::vector<cuda::CudaLinearPlan>& sections) {
    auto& layers = indices_.size() % 2 == 0 ? gate_up_ : down_;
    std::vector<cuda::ExpertSection>& layer = layers.emplace_back();
    for (const cuda::CudaLinearPlan& section : sections) {
      layer.push_back({.kind = kind_of(section),
                       .group_size = section.group_size,
                       .N = section.out_features,
                       .K = section.in_features,
                       .row_stride = section.row_stride,
                       .activation = {.kind = section.activation,
                                      .scale = section.activation_scale,
                                      .num_s8_inputs = section.num_s8_inputs,
                                      .s4_clip = section.s4_clip},
                       .order = section.has_input_perm ? ++num_orders_ : 0});
    }
    indices_.push_back(part_index);
  }

  /// The same question as CudaExperts asks of what was loaded.
  void finish(const DecoderConfig& config, DType activation_dtype,
              std::vector<std::vector<GpuLinearPlan>>& plans) {
    const bool is_grouped =
        !indices_.empty() &&
        cuda::why_not_grouped(activation_dtype, config.is_gated, gate_up_).empty() &&
        cuda::why_not_grouped(activation_dtype, false, down_).empty();
    for (size_t i = 0; is_grouped && i < indices_.size(); ++i) {
      const std::vector<cuda::ExpertSection>& first = i % 2 == 0 ? gate_up_[0] : down_[0];
      for (GpuLinearPlan& plan : plans[indices_[i]]) {
        set_grouped(plan, cuda::grouped_kernel_name(*first[0].kind));
      }
    }
    *this = {};
  }

 private:
  static std::optional<cuda::GroupedKind> kind_of(const cuda::CudaLinearPlan& section) {
    return section.packed_kind ? cuda::grouped_kind(*section.packed_kind)
                               : cuda::grouped_kind_of_rows(section.row_dtype);
  }

  std::vector<std::vector<cuda::ExpertSection>> gate_up_, down_;
  std::vector<size_t> indices_;
  uintptr_t num_orders_ = 0;
};

/// The embedding's table as the output layer.
GpuLinearPlan plan_tied_output(const DecoderConfig& config, const DecoderPart& part,
                               const LinearLoading& loading, DType activation_dtype) {
  const TensorInfo* info = loading.source.find(part.table_name);
  const cuda::CudaGemmProblem problem = {.dtype = activation_dtype,
                                         .y_dtype = DType::kF32,
                                         .N = config.vocabulary().size(),
                                         .K = config.hidden_size};
  cuda::CudaGemmChoice choice = cuda::choose_cuda_gemm_kernel(problem, nullptr);
  const std::string form = info == nullptr ? str("quantized, decoded to ", activation_dtype,
                                                 ": embeddings are looked up in it")
                                           : str(info->dtype, ", kept in ", activation_dtype);
  return {.name = part.table_name,
          .out_features = problem.N,
          .in_features = problem.K,
          .form = form,
          .kernel = choice.kernel->name,
          .device_bytes = cuda::row_bytes_of(problem.dtype, problem.N, problem.K),
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
    planned[i].kernel = section.weight->kernel_name();
    planned[i].low_kernel = section.weight->low_kernel_name();
    planned[i].rejections = section.weight->rejections();
    planned[i].device_bytes = section.device_bytes();
    if (!placed.grouped_kernel.empty()) set_grouped(planned[i], placed.grouped_kernel);
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

std::vector<std::vector<GpuLinearPlan>> plan_gpu_parts(const DecoderConfig& config,
                                                       std::span<const DecoderPart> parts,
                                                       const LinearLoading& loading,
                                                       DType activation_dtype) {
  std::vector<std::vector<GpuLinearPlan>> plans(parts.size());
  PlannedExperts experts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const DecoderPart& part = parts[i];
    if (part.kind == PartKind::kEmbedding && !config.lm_head) {
      plans[i].push_back(plan_tied_output(config, part, loading, activation_dtype));
    }
    if (!part.is_expert) experts.finish(config, activation_dtype, plans);
    if (part.kind != PartKind::kLinear) continue;
    const auto use = part.is_expert ? cuda::LinearUse::kGrouped : cuda::LinearUse::kAlone;
    const std::vector<cuda::CudaLinearPlan> sections =
        cuda::plan_cuda_linear(loading.scheme, loading.source, *part.linear, activation_dtype, use);
    for (const cuda::CudaLinearPlan& section : sections) plans[i].push_back(plan_of(section));
    if (part.is_expert) experts.add(i, sections);
  }
  experts.finish(config, activation_dtype, plans);
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
  prepare_tuned_plans(options, use_cuda_device(options.gpu_ordinal), plan);
  auto model = std::make_unique<cuda::CudaDecoder>(
      context, plan.config, loading,
      cuda::CudaDecoderOptions{.ordinal = options.gpu_ordinal,
                               .activation_dtype = plan.activation_dtype,
                               .memory_utilization = options.gpu_memory_utilization,
                               .is_batch_invariant = options.is_batch_invariant,
                               .ranks = options.ranks,
                               .stages = options.stages},
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
