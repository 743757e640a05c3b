#include "halley/quant/fp8/fp8.h"

#include <array>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/fp8/fp8_config.h"
#include "halley/quant/stored/byte_weight.h"
#include "halley/quant/stored/fp4_weight.h"
#include "halley/quant/stored/part_tensors.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr const char* kName = "fp8";

class Fp8Scheme : public QuantScheme {
 public:
  explicit Fp8Scheme(Fp8Config config) : config_(std::move(config)) {}

  const char* format_name() const override { return kName; }
  std::string summary() const override { return config_.summary; }
  DeclaredKv declared_kv() const override { return config_.declared_kv; }
  std::vector<std::string> warnings() const override { return config_.warnings; }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const Part& part,
                                     int64_t in_features) const override {
    if (part.expert >= 0) {
      reject_quantized_experts(source, part);
      return open_dense_weight(source, part, in_features);
    }
    const bool is_quantized = has_quantized_weight(source, part);
    const SkipList::Verdict verdict = config_.skips.verdict(part.name);
    const bool may_be_dense = verdict.says == ConfigSays::kQuantized && part.is_usually_dense;
    check_agreement(source, part, may_be_dense ? ConfigSays::kEither : verdict.says, is_quantized,
                    verdict.because);
    if (!is_quantized) {
      check_no_scales(source, part);
      return open_dense_weight(source, part, in_features);
    }
    if (config_.fp4_group_size > 0) {
      return open_fp4_weight(source, part, in_features, fp4_spec_of(part));
    }
    reject_other_floats(source, part);
    return open_byte_weight(source, part, in_features, spec_of(&source, part, in_features));
  }

  std::vector<TensorInfo> expected_tensors(const Part& part, int64_t in_features) const override {
    const bool is_dense = part.expert >= 0 || part.is_usually_dense ||
                          config_.skips.verdict(part.name).says == ConfigSays::kDense;
    if (is_dense) return {expected_dense_tensor(part, in_features, DType::kF16)};
    if (config_.fp4_group_size > 0) {
      return expected_fp4_tensors(part, in_features, fp4_spec_of(part));
    }
    return expected_byte_tensors(part, in_features, spec_of(nullptr, part, in_features));
  }

 private:
  Fp4WeightSpec fp4_spec_of(const Part& part) const {
    return {.format = kName,
            .values_name = part.name + ".weight",
            .scale_name = part.name + ".weight_scale",
            .group_size = config_.fp4_group_size,
            .global_name = part.name + ".weight_scale_2",
            .unused_names = {part.name + ".input_scale"}};
  }

  /// Without a source: the tensors that most checkpoints have.
  ByteWeightSpec spec_of(const TensorSource* source, const Part& part, int64_t in_features) const {
    const auto has = [&](const std::string& name) {
      return source != nullptr && source->find(name) != nullptr;
    };
    const std::string inverse = part.name + ".weight_scale_inv";
    ByteWeightSpec spec;
    spec.format = kName;
    spec.activation = config_.activation;
    spec.scale_name = part.name + ".weight_scale";
    spec.group_size = in_features;
    if (config_.block_rows > 0) {
      spec.scale_name = inverse;
      spec.block_rows = config_.block_rows;
      spec.group_size = config_.block_inputs;
    } else {
      // transformers uses this name for every kind of scale.
      if (!has(spec.scale_name) && has(inverse)) spec.scale_name = inverse;
      const TensorInfo* scale = source == nullptr ? nullptr : source->find(spec.scale_name);
      const bool is_per_tensor = scale == nullptr || num_elements_of(scale->shape) == 1;
      spec.block_rows = is_per_tensor ? std::max<int64_t>(1, part.stored_rows) : 1;
    }
    if (config_.activation == ActivationQuant::kE4m3Static) {
      spec.input_scale_name = part.name + ".input_scale";
      const std::string other = part.name + ".activation_scale";
      if (!has(spec.input_scale_name) && has(other)) spec.input_scale_name = other;
    }
    return spec;
  }

  /// The other 8-bit floats are tensor types of their own and would dequantize to wrong values.
  static void reject_other_floats(const TensorSource& source, const Part& part) {
    const TensorInfo* weight = source.find(part.name + ".weight");
    if (weight->dtype != DType::kF8E5M2 && weight->dtype != DType::kF8E4M3Fnuz &&
        weight->dtype != DType::kF8E5M2Fnuz) {
      return;
    }
    throw UnsupportedError(str(source.description(), ": tensor ", quote(weight->name),
                               ": expected type f8_e4m3, got ", weight->dtype,
                               ". Quantize the model again to e4m3."));
  }

  static void check_no_scales(const TensorSource& source, const Part& part) {
    for (const char* suffix : {".weight_scale", ".weight_scale_inv"}) {
      reject_stray_tensor(source, part, suffix);
    }
  }

  Fp8Config config_;
};

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (!config.fields) return nullptr;
  if (config.method == "fp8") {
    return std::make_unique<Fp8Scheme>(read_fp8_config(*config.fields));
  }
  if (config.method == "modelopt" || config.method == "modelopt_fp4") {
    return std::make_unique<Fp8Scheme>(read_modelopt_config(*config.fields));
  }
  return nullptr;
}

constexpr std::array<FormatOption, 4> kOptions = {{
    {"e4m3, a scale per tensor or channel, dynamic",
     option_problem(PackedLayout::kF8E4M3Quad, kOptionSize, ActivationQuant::kE4m3Token)},
    {"e4m3, a scale per tensor or channel, static",
     option_problem(PackedLayout::kF8E4M3Quad, kOptionSize, ActivationQuant::kE4m3Static)},
    {"e4m3, a scale per block",
     option_problem(PackedLayout::kF8E4M3Quad, 128, ActivationQuant::kE4m3Group128)},
    {"NVFP4 of ModelOpt", option_problem(PackedLayout::kE2m1Quad, 16)},
}};

}  // namespace

const QuantFormat kQuantFp8 = {.name = kName, .detect = detect, .options = kOptions};

}  // namespace halley
