#include "halley/quant/compressed_tensors/compressed_tensors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/compressed_tensors/packed_rows.h"
#include "halley/quant/compressed_tensors/scheme_config.h"
#include "halley/quant/stored/byte_weight.h"
#include "halley/quant/stored/fp4_weight.h"
#include "halley/quant/stored/part_tensors.h"
#include "halley/quant/stored/scale_grid.h"

namespace halley {
namespace {

using Part = LinearSpec::Part;

constexpr const char* kName = "compressed-tensors";

bool is_static(ActivationQuant activation) {
  return activation == ActivationQuant::kS8Static || activation == ActivationQuant::kE4m3Static;
}

/// The spec of a storage with a byte per value.
ByteWeightSpec byte_spec_of(const Part& part, int64_t in_features, const GroupScheme& scheme) {
  ByteWeightSpec spec;
  spec.format = kName;
  spec.dtype = scheme.storage == CodeStorage::kInt8 ? DType::kI8 : DType::kF8E4M3;
  spec.scale_name = part.name + ".weight_scale";
  spec.block_rows =
      scheme.block_rows > 0 ? scheme.block_rows : std::max<int64_t>(1, part.stored_rows);
  spec.group_size = scheme.group_size > 0 ? scheme.group_size : in_features;
  if (!scheme.is_symmetric) spec.zero_name = part.name + ".weight_zero_point";
  spec.activation = scheme.activation;
  if (is_static(scheme.activation)) spec.input_scale_name = part.name + ".input_scale";
  return spec;
}

Fp4WeightSpec fp4_spec_of(const Part& part, const GroupScheme& scheme) {
  const bool is_nv = scheme.storage == CodeStorage::kNvFp4;
  return {.format = kName,
          .values_name = part.name + ".weight_packed",
          .scale_name = part.name + ".weight_scale",
          .has_e8m0_scales = !is_nv,
          .group_size = scheme.group_size,
          .global_name = is_nv ? part.name + ".weight_global_scale" : "",
          .is_global_reciprocal = true,
          .unused_names = {part.name + ".input_global_scale"}};
}

std::string describe(const GroupScheme& scheme) {
  const char* kind = scheme.is_float4()                       ? "-bit floats (e2m1)"
                     : scheme.storage == CodeStorage::kFloat8 ? "-bit floats (e4m3)"
                                                              : " bits";
  std::string text = str(scheme.bits, kind);
  if (scheme.block_rows > 1) {
    text += str(", blocks of ", scheme.block_rows, "x", scheme.group_size);
  } else if (scheme.group_size > 0) {
    text += str(", group ", scheme.group_size);
  } else {
    text += scheme.block_rows == 0 ? ", per tensor" : ", per output feature";
  }
  text += scheme.is_symmetric ? ", symmetric" : ", asymmetric";
  if (scheme.has_input_perm) text += ", input order";
  if (scheme.activation != ActivationQuant::kNone) {
    text += str(", activations ", scheme.activation);
  }
  return text;
}

/// Tools quantize whole groups only, or one that is larger than K.
void check_group_size(const TensorSource& source, const Part& part, int64_t in_features,
                      const GroupScheme& scheme) {
  if (scheme.block_rows != 1 || scheme.group_size <= 0) return;
  if (in_features < scheme.group_size || in_features % scheme.group_size == 0) return;
  throw CheckpointError(str(source.description(), ": layer ", quote(part.name), ": expected '",
                            scheme.path, ".weights.group_size' to divide its ", in_features,
                            " inputs, got ", scheme.group_size, ". Correct the configuration."));
}

class CompressedScheme : public QuantScheme {
 public:
  explicit CompressedScheme(SchemeConfig config) : config_(std::move(config)) {}

  const char* format_name() const override { return kName; }
  DeclaredKv declared_kv() const override { return config_.declared_kv(); }
  std::vector<std::string> warnings() const override { return config_.warnings(); }

  std::string summary() const override {
    std::string text;
    for (const GroupScheme& group : config_.groups()) {
      text += str(text.empty() ? "" : "; ", describe(group));
    }
    return text.empty() ? "full-precision weights" : text;
  }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const Part& part,
                                     int64_t in_features) const override {
    if (part.expert >= 0) {
      reject_quantized_experts(source, part);
      return open_dense_weight(source, part, in_features);
    }
    const bool is_packed = source.find(part.name + ".weight_packed") != nullptr;
    const bool is_quantized = is_packed || has_quantized_weight(source, part);
    const SchemeConfig::Verdict verdict = config_.verdict(part.name, part.is_usually_dense);
    check_agreement(source, part, verdict.says, is_quantized, verdict.because);
    if (!is_quantized) {
      reject_stray_tensor(source, part, ".weight_scale");
      return open_dense_weight(source, part, in_features);
    }
    const GroupScheme& scheme = *verdict.group;
    check_group_size(source, part, in_features, scheme);
    if (scheme.storage == CodeStorage::kPacked) {
      return open_packed_rows(source, part, in_features, scheme);
    }
    if (scheme.is_float4()) {
      return open_fp4_weight(source, part, in_features, fp4_spec_of(part, scheme));
    }
    if (scheme.is_symmetric) check_all_zero(source, part.name + ".weight_zero_point");
    if (is_static(scheme.activation)) check_all_zero(source, part.name + ".input_zero_point");
    return open_byte_weight(source, part, in_features, byte_spec_of(part, in_features, scheme));
  }

  std::vector<TensorInfo> expected_tensors(const Part& part, int64_t in_features) const override {
    const SchemeConfig::Verdict verdict = config_.verdict(part.name, part.is_usually_dense);
    if (part.expert >= 0 || verdict.says != ConfigSays::kQuantized) {
      return {expected_dense_tensor(part, in_features, DType::kF16)};
    }
    const GroupScheme& scheme = *verdict.group;
    if (scheme.is_float4())
      return expected_fp4_tensors(part, in_features, fp4_spec_of(part, scheme));
    if (scheme.storage != CodeStorage::kPacked) {
      return expected_byte_tensors(part, in_features, byte_spec_of(part, in_features, scheme));
    }
    auto infos = expected_packed_tensors(part, in_features, scheme);
    if (is_static(scheme.activation)) {
      TensorInfo scale;
      scale.name = part.name + ".input_scale";
      infos.push_back(std::move(scale));
    }
    return infos;
  }

 private:
  SchemeConfig config_;
};

std::unique_ptr<QuantScheme> detect(const QuantConfig& config, const TensorSource&) {
  if (!config.fields || config.method != kName) return nullptr;
  return std::make_unique<CompressedScheme>(SchemeConfig(*config.fields));
}

constexpr std::array<FormatOption, 12> kOptions = {{
    {"pack-quantized, 2 bits", option_problem(PackedLayout::kU2Quad, 128)},
    {"pack-quantized, 3 bits", option_problem(PackedLayout::kU3Quad, 128)},
    {"pack-quantized, 4 bits", option_problem(PackedLayout::kU4Quad, 128)},
    {"pack-quantized, 8 bits", option_problem(PackedLayout::kU8Quad, 128)},
    {"int-quantized, dynamic",
     option_problem(PackedLayout::kU8Quad, kOptionSize, ActivationQuant::kS8Token)},
    {"int-quantized, static",
     option_problem(PackedLayout::kU8Quad, kOptionSize, ActivationQuant::kS8Static)},
    {"int-quantized, weights alone", option_problem(PackedLayout::kU8Quad, kOptionSize)},
    {"float-quantized, dynamic",
     option_problem(PackedLayout::kF8E4M3Quad, kOptionSize, ActivationQuant::kE4m3Token)},
    {"float-quantized, static",
     option_problem(PackedLayout::kF8E4M3Quad, kOptionSize, ActivationQuant::kE4m3Static)},
    {"float-quantized, a scale per block",
     option_problem(PackedLayout::kF8E4M3Quad, 128, ActivationQuant::kE4m3Group128)},
    {"nvfp4-pack-quantized", option_problem(PackedLayout::kE2m1Quad, 16)},
    {"mxfp4-pack-quantized", option_problem(PackedLayout::kE2m1Quad, 32)},
}};

}  // namespace

const QuantFormat kQuantCompressedTensors = {.name = kName, .detect = detect, .options = kOptions};

}  // namespace halley
