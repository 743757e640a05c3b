#include "halley/models/all/plan_json.h"

#include <utility>

namespace halley {
namespace {

OrderedJson json_of(const LinearPlan& plan) {
  const WeightDesc& weight = plan.weight;
  OrderedJson json = {{"name", plan.name},
                      {"format", weight.format},
                      {"dtype", name_of(weight.stored_dtype)},
                      {"bits", weight.bits}};
  if (is_quantized(weight.layout)) {
    json["group_size"] = weight.group_size;
    json["symmetric"] = weight.is_symmetric;
    json["input_order"] = weight.has_input_perm;
    json["activation"] = name_of(weight.activation);
  }
  json["out_features"] = plan.out_features;
  json["in_features"] = plan.in_features;
  json["bits_per_weight"] = plan.bits_per_weight;
  json["layout"] = name_of(weight.layout);
  json["bytes"] = plan.packed_bytes;
  json["compression"] = compression(plan);
  json["kernel"] = plan.kernel == nullptr ? Json() : Json(plan.kernel->name);
  if (plan.low_kernel != nullptr) json["low_kernel"] = plan.low_kernel->name;
  json["rejected"] = plan.rejections;
  json["refused"] = plan.rejections;  // alias for readers of 0.1.0
  return json;
}

OrderedJson json_of(const GpuLinearPlan& plan) {
  OrderedJson json = {{"name", plan.name},
                      {"out_features", plan.out_features},
                      {"in_features", plan.in_features},
                      {"form", plan.form},
                      {"bytes", plan.device_bytes},
                      {"kernel", plan.kernel},
                      {"rejected", plan.rejections},
                      {"refused", plan.rejections}};  // alias for readers of 0.1.0
  if (!plan.low_kernel.empty()) json["low_kernel"] = plan.low_kernel;
  if (!plan.mma_kernel.empty()) json["mma_kernel"] = plan.mma_kernel;
  return json;
}

OrderedJson json_of(const ModelPart& part) {
  OrderedJson json = {{"name", part.name}, {"kind", part.kind}};
  if (part.kind == "norm") return json;
  if (!part.gpu_plans.empty()) {
    json["gpu_weights"] = OrderedJson::array();
    for (const GpuLinearPlan& plan : part.gpu_plans) json["gpu_weights"].push_back(json_of(plan));
    return json;
  }
  json["weights"] = OrderedJson::array();
  for (const LinearPlan& plan : part.plans) json["weights"].push_back(json_of(plan));
  return json;
}

}  // namespace

double compression(const LinearPlan& plan) {
  if (plan.packed_bytes == 0) return 0;
  const double f16_bytes =
      2.0 * static_cast<double>(plan.out_features) * static_cast<double>(plan.in_features);
  return f16_bytes / static_cast<double>(plan.packed_bytes);
}

OrderedJson to_json(const ModelPlan& plan) {
  const DecoderConfig& config = plan.config;
  OrderedJson parts = OrderedJson::array();
  for (const ModelPart& part : plan.parts) parts.push_back(json_of(part));
  return {{"family", config.family},
          {"format", plan.format},
          {"format_summary", plan.summary},
          {"warnings", plan.warnings},
          {"dtype", name_of(config.dtype)},
          {"device", plan.device},
          {"activation_dtype", name_of(plan.activation_dtype)},
          {"num_layers", config.num_layers},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"vocab_size", config.vocab_size},
          {"max_positions", config.max_positions},
          {"stored_bytes", plan.stored_bytes},
          {"packed_bytes", plan.packed_bytes},
          {"f16_bytes", plan.f16_bytes},
          {"kv_bytes_per_token", plan.kv_bytes_per_token},
          {"parts", std::move(parts)}};
}

}  // namespace halley
