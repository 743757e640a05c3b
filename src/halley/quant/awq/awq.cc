#include "halley/quant/awq/awq.h"

#include <array>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/awq/awq_settings.h"
#include "halley/quant/awq/awq_weight.h"

namespace halley {
namespace {

class AwqScheme : public QuantScheme {
 public:
  explicit AwqScheme(const QuantConfig& config) : settings_(config) {}

  const char* format_name() const override { return "awq"; }
  std::string summary() const override;
  std::unique_ptr<StoredWeight> open(const TensorSource& source, const LinearSpec::Part& part,
                                     int64_t in_features) const override;
  std::vector<TensorInfo> expected_tensors(const LinearSpec::Part& part,
                                           int64_t in_features) const override;

 private:
  static bool is_stored_quantized(const TensorSource& source, const LinearSpec::Part& part,
                                  ConfigSays says);

  AwqSettings settings_;
};

std::string AwqScheme::summary() const {
  std::string text = "4 bits, ";
  const int64_t group_size = settings_.group_size();
  text += group_size == -1 ? "per-channel" : str("group ", group_size);
  if (!settings_.has_zero_points()) text += ", symmetric";
  if (settings_.storage()) text += str(", ", name_of(*settings_.storage()));
  return text;
}

bool AwqScheme::is_stored_quantized(const TensorSource& source, const LinearSpec::Part& part,
                                    ConfigSays says) {
  const std::string dense = dense_weight_name(part), codes = part.name + ".qweight";
  const bool has_dense = source.find(dense) != nullptr;
  if (source.find(codes) == nullptr) {
    // With neither tensor present, the error names the one that the configuration asks for.
    return !has_dense && part.expert < 0 && says != ConfigSays::kDense && !part.is_usually_dense;
  }
  if (part.expert >= 0) reject_fused_experts(source.description(), part);
  if (!has_dense) return true;
  reject_second_weight(source, part, codes);
}

std::unique_ptr<StoredWeight> AwqScheme::open(const TensorSource& source,
                                              const LinearSpec::Part& part,
                                              int64_t in_features) const {
  const AwqSettings::Layer layer = settings_.layer(part);
  const bool is_quantized = is_stored_quantized(source, part, layer.says);
  if (!is_quantized && source.find(dense_weight_name(part)) == nullptr) {
    return open_dense_weight(source, part, in_features);  // names the tensor that is missing
  }
  check_agreement(source, part, layer.says, is_quantized, layer.because);
  if (!is_quantized) return open_dense_weight(source, part, in_features);
  return open_awq_weight(
      {.source = source, .part = part, .in_features = in_features, .checkpoint = settings_});
}

std::vector<TensorInfo> AwqScheme::expected_tensors(const LinearSpec::Part& part,
                                                    int64_t in_features) const {
  if (settings_.layer(part).says == ConfigSays::kDense || part.is_usually_dense) {
    return {expected_dense_tensor(part, in_features, DType::kF16)};
  }
  if (part.expert >= 0) reject_fused_experts("configuration", part);
  return awq_tensors(part, in_features, settings_,
                     settings_.storage().value_or(AwqStorage::kByInput));
}

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (config.method != "awq") return nullptr;
  return std::make_unique<AwqScheme>(config);
}

constexpr std::array<FormatOption, 2> kOptions = {{
    {"4 bits, gemm, gemv, exllama, ipex", option_problem(PackedLayout::kU4Quad, 128)},
    {"4 bits, gemv_fast, llm-awq (scaled zeros)",
     option_problem(PackedLayout::kU4Quad, 128, ActivationQuant::kNone, ZeroKind::kOffset)},
}};

}  // namespace

const QuantFormat kQuantAwq = {.name = "awq", .detect = detect, .options = kOptions};

}  // namespace halley
