#include "halley/models/all/load_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/safetensors/safetensors.h"
#include "halley/models/all/gpu_model.h"
#include "halley/models/base/decoder.h"
#include "halley/models/base/decoder_parts.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/models/base/kv_scales.h"
#include "halley/models/base/slice_decoder.h"
#include "halley/quant/all/formats.h"

namespace halley {
namespace {

constexpr const char* kCuda = "cuda";

const char* kind_name(PartKind kind) {
  switch (kind) {
    case PartKind::kEmbedding:
      return "embedding";
    case PartKind::kPositions:
      return "embedding";
    case PartKind::kNorm:
      return "norm";
    case PartKind::kLinear:
      break;
  }
  return "linear";
}

std::unique_ptr<QuantScheme> detect(const HfConfig& config, const TensorSource& source,
                                    const LoadOptions& options) {
  const QuantConfig quant = options.quant ? *options.quant : read_quant_config(config, {});
  return detect_quant_scheme(quant, source, options.overrides);
}

/// A kernel that was forced and runs nothing was a mistake of the user's.
void check_forced_kernel(const ModelPlan& plan, const std::string& forced) {
  if (forced.empty()) return;
  for (const ModelPart& part : plan.parts) {
    for (const LinearPlan& linear : part.plans) {
      for (const GemmKernel* kernel : {linear.kernel, linear.low_kernel}) {
        if (kernel != nullptr && kernel->name == forced) return;
      }
    }
  }
  throw InputError(str("kernel ", forced, ": expected a layer that it can run, got none in ",
                       plan.config.where, ". `halley inspect` shows the layouts of the layers."));
}

void check_required_gpu_kernels(const ModelPlan& plan, const std::vector<std::string>& required) {
  if (required.empty()) return;
  for (const ModelPart& part : plan.parts) {
    for (const GpuLinearPlan& linear : part.gpu_plans) {
      if (std::find(required.begin(), required.end(), linear.kernel) != required.end()) continue;
      throw InputError(str("--require-kernel: layer ", quote(linear.name), ": expected one of ",
                           required, ", got ", linear.kernel, " (", linear.form,
                           "). Leave the option out, or name that kernel too."));
    }
  }
}

void add_part(const DecoderPart& part, const LinearLoading& loading, ModelPlan& plan) {
  ModelPart planned;
  planned.name = part.name;
  planned.kind = kind_name(part.kind);
  planned.plans = plan_part(plan.config, part, loading);
  for (const LinearPlan& linear : planned.plans) {
    plan.f16_bytes += static_cast<size_t>(linear.out_features * linear.in_features) * 2;
    plan.warnings.insert(plan.warnings.end(), linear.warnings.begin(), linear.warnings.end());
  }
  plan.parts.push_back(std::move(planned));
}

void add_parts(const LinearLoading& loading, ModelPlan& plan) {
  const std::vector<DecoderPart> parts = list_decoder_parts(plan.config);
  for (const DecoderPart& part : parts) add_part(part, loading, plan);
  if (plan.device == kCuda) {
    auto gpu_plans = plan_gpu_parts(plan.config, parts, loading, plan.activation_dtype);
    for (size_t i = 0; i < parts.size(); ++i) plan.parts[i].gpu_plans = std::move(gpu_plans[i]);
  }
  for (const ModelPart& part : plan.parts) {
    for (const GpuLinearPlan& linear : part.gpu_plans) plan.packed_bytes += linear.device_bytes;
    if (!part.gpu_plans.empty()) continue;
    for (const LinearPlan& linear : part.plans) plan.packed_bytes += linear.packed_bytes;
  }
}

std::optional<KvDType> kv_dtype_of(DeclaredKv declared) {
  switch (declared) {
    case DeclaredKv::kNothing:
      return std::nullopt;
    case DeclaredKv::kFp8Static:
      return KvDType::kFp8E4M3;
    case DeclaredKv::kInt8:
      return KvDType::kInt8;
    case DeclaredKv::kInt4:
      return KvDType::kInt4;
  }
  return std::nullopt;
}

/// The demands on kernels of the CPU; none where they will not run.
KernelDemands cpu_demands(const LoadOptions& options) {
  if (options.device != kCuda) return options.kernels;
  if (options.kernels.forced.empty()) return {};
  throw InputError(str("HALLEY_KERNEL: expected none with --device cuda, got ",
                       quote(options.kernels.forced),
                       ". It names a kernel of the CPU; leave it out."));
}

DType activation_dtype_of(const LoadOptions& options, const DecoderConfig& config) {
  if (options.activation_dtype) return *options.activation_dtype;
  return config.dtype == DType::kF32 ? DType::kF16 : config.dtype;
}

ModelPlan plan_decoder(const DecoderConfig& decoder, const LinearLoading& loading,
                       const LoadOptions& options) {
  HALLEY_CHECK(options.device == "cpu" || options.device == kCuda, options.device);
  check_kernel_names(loading.demands);
  ModelPlan plan;
  if (options.is_batch_invariant && options.device == kCuda && options.share.num_ranks > 2) {
    throw UnsupportedError(str("--batch-invariant: expected at most 2 ranks, got ",
                               options.share.num_ranks,
                               ": NCCL adds the parts of more in an order ",
                               "that depends on the size of a step. Leave it out."));
  }
  plan.config = slice_decoder(decoder, loading, options.share);
  plan.device = options.device;
  if (plan.device == kCuda) {
    plan.activation_dtype = activation_dtype_of(options, plan.config);
    check_gpu_model(plan.config, plan.activation_dtype);
  }
  plan.format = loading.scheme.format_name();
  plan.summary = loading.scheme.summary();
  plan.warnings = loading.scheme.warnings();
  StoredKvScales kv_scales = read_kv_scales(plan.config, loading);
  if (!kv_scales.scales.empty()) plan.config.kv_scales = std::move(kv_scales.scales);
  plan.config.kv_dtype = kv_dtype_of(loading.scheme.declared_kv());
  add_parts(loading, plan);
  check_all_tensors_used(decoder, loading);
  const std::string note = note_of_left_out(decoder, loading.source);
  if (!note.empty()) plan.warnings.push_back(note);
  check_forced_kernel(plan, loading.demands.forced);
  for (const TensorInfo& info : loading.source.tensors()) plan.stored_bytes += info.num_bytes;
  ModelShape shape = shape_of(plan.config);
  if (plan.device == kCuda && !plan.config.kv_dtype) {
    shape.kv_dtype_default = kv_dtype_of(plan.activation_dtype);
  }
  plan.kv_bytes_per_token = kv_bytes_per_token(shape, shape.kv_dtype_default);
  check_required_gpu_kernels(
      plan, options.device == kCuda ? options.kernels.required : std::vector<std::string>());
  return plan;
}

}  // namespace

ModelPlan plan_model(const HfConfig& config, const TensorSource& source,
                     const LoadOptions& options) {
  const std::unique_ptr<QuantScheme> scheme = detect(config, source, options);
  const KernelDemands demands = cpu_demands(options);
  const LinearLoading loading = {.scheme = *scheme,
                                 .source = source,
                                 .demands = demands,
                                 .has_cpu_kernels = options.device != kCuda};
  return plan_decoder(read_decoder_config(config, source, options.max_length), loading, options);
}

LoadedDecoder load_decoder(ExecContext& context, const HfConfig& config,
                           const DecoderConfig& decoder, const TensorSource& source,
                           const LoadProgress& progress, const LoadOptions& options) {
  const std::unique_ptr<QuantScheme> scheme = detect(config, source, options);
  const KernelDemands demands = cpu_demands(options);
  LoadedDecoder loaded;
  const LinearLoading loading = {.scheme = *scheme,
                                 .source = source,
                                 .demands = demands,
                                 .has_self_check = options.has_self_check,
                                 .times = &loaded.times,
                                 .has_cpu_kernels = options.device != kCuda};
  loaded.plan = plan_decoder(decoder, loading, options);
  size_t done = 0;
  const auto on_part = [&](size_t num_bytes) {
    done += num_bytes;
    if (progress) progress(done, loaded.plan.packed_bytes);
  };
  if (options.device == kCuda) {
    loaded.model = load_gpu_model(context, loading, options, on_part, loaded.plan);
    check_required_gpu_kernels(loaded.plan, options.kernels.required);
    return loaded;
  }
  DecoderWeights weights = load_decoder_weights(context, loaded.plan.config, loading, on_part);
  loaded.model = std::make_unique<Decoder>(context, loaded.plan.config, std::move(weights),
                                           options.ranks, options.stages);
  return loaded;
}

LoadedDecoder load_model(ExecContext& context, const HfConfig& config, const TensorSource& source,
                         const LoadProgress& progress, const LoadOptions& options) {
  return load_decoder(context, config, read_decoder_config(config, source, options.max_length),
                      source, progress, options);
}

std::vector<TensorInfo> list_dense_tensors(const DecoderConfig& config) {
  return list_decoder_tensors(config);
}

std::vector<TensorInfo> list_quantized_tensors(const DecoderConfig& config,
                                               const QuantConfig& quant) {
  const auto nothing = make_dummy_weights({});
  const std::unique_ptr<QuantScheme> scheme = detect_quant_scheme(quant, *nothing);
  return list_decoder_tensors(config, scheme.get());
}

}  // namespace halley
