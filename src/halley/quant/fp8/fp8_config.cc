#include "halley/quant/fp8/fp8_config.h"

#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"
#include "halley/quant/stored/kv_scheme.h"

namespace halley {
namespace {

constexpr int64_t kBlockMax = 1 << 20;
constexpr int64_t kFp4Group = 16;          // of NVFP4
constexpr int64_t kActivationGroup = 128;  // of ActivationQuant::kE4m3Group128

const char* first_present(const HfConfig& fields, const char* name, const char* other_name) {
  return !fields.has(name) && fields.has(other_name) ? other_name : name;
}

/// A name as AutoFP8 wrote it, or the object of compressed-tensors.
DeclaredKv read_kv(const HfConfig& fields) {
  const auto it = fields.json().find("kv_cache_scheme");
  if (it == fields.json().end() || !it->is_string()) return read_kv_cache_scheme(fields);
  if (*it == "static") return DeclaredKv::kFp8Static;
  reject_field(fields, "kv_cache_scheme", "\"static\"",
               "Remove the field and choose the cache's precision with --kv-dtype.");
}

void read_block(const HfConfig& fields, Fp8Config& config) {
  if (!fields.has("weight_block_size")) return;
  const std::vector<int64_t> block = fields.integers("weight_block_size");
  const auto is_size = [](int64_t size) { return size >= 1 && size <= kBlockMax; };
  if (block.size() != 2 || !is_size(block[0]) || !is_size(block[1])) {
    fail_field(fields, "weight_block_size", "two positive integers, [128, 128] as a rule",
               "Correct it: the shapes of weight_scale_inv tell the size.");
  }
  config.block_rows = block[0];
  config.block_inputs = block[1];
}

/// Sets the activations of block-quantized weights: per-token, per-block scales.
void set_block_activation(const HfConfig& fields, Fp8Config& config) {
  if (config.activation == ActivationQuant::kE4m3Static) {
    reject_field(fields, "activation_scheme", "\"dynamic\" with weight_block_size",
                 "Quantize again with dynamic activations, or without blocks.");
  }
  config.activation = ActivationQuant::kE4m3Group128;
  if (config.block_inputs == kActivationGroup) return;
  config.activation = ActivationQuant::kNone;
  config.warnings.push_back(
      str(fields.where(), ": field '", field_path(fields, "weight_block_size"),
          "': activations are rounded in groups of 128 inputs only, and the blocks have ",
          config.block_inputs, ": they are not rounded, which is slower and more exact."));
}

std::string describe(const Fp8Config& config) {
  const std::string scales = config.block_rows == 0
                                 ? "per-tensor or per-channel scales"
                                 : str("blocks of ", config.block_rows, "x", config.block_inputs);
  return str("8-bit floats (e4m3), ", scales, ", activations ", config.activation);
}

constexpr const char* kModelOptAdvice =
    "Export the model from ModelOpt as FP8 or NVFP4, or use a 4-bit checkpoint of GPTQ, AWQ or "
    "compressed-tensors.";

/// The object that declares the algorithm: nested in hf_quant_config.json, flat in config.json.
HfConfig algorithm_of(const HfConfig& fields) {
  if (auto nested = fields.object("quantization")) return *std::move(nested);
  return fields;
}

DeclaredKv read_modelopt_kv(const HfConfig& fields) {
  const std::string algorithm = fields.string_or("kv_cache_quant_algo", "");
  if (algorithm.empty() || algorithm == "none") return read_kv_cache_scheme(fields);
  if (algorithm == "FP8") return DeclaredKv::kFp8Static;
  reject_field(fields, "kv_cache_quant_algo", "\"FP8\"",
               "Remove the field and choose the cache's precision with --kv-dtype.");
}

}  // namespace

Fp8Config read_fp8_config(const HfConfig& fields) {
  Fp8Config config;
  const std::string scheme = fields.string_or("activation_scheme", "");
  if (scheme == "static") {
    config.activation = ActivationQuant::kE4m3Static;
  } else if (scheme.empty()) {
    fail_field(fields, "activation_scheme", "\"dynamic\" or \"static\"",
               "State the one that the model was quantized with.");
  } else if (scheme != "dynamic") {
    reject_field(fields, "activation_scheme", "\"dynamic\" or \"static\"",
                 "Quantize the model again with one of them.");
  }
  if (fields.string_or("fmt", "e4m3") != "e4m3") {
    reject_field(fields, "fmt", "\"e4m3\"", "Quantize the model again to e4m3.");
  }
  read_block(fields, config);
  if (config.block_rows > 0) set_block_activation(fields, config);
  config.skips =
      SkipList(fields, first_present(fields, "ignored_layers", "modules_to_not_convert"));
  config.declared_kv = read_kv(fields);
  config.summary = describe(config);
  return config;
}

Fp8Config read_modelopt_config(const HfConfig& fields) {
  const HfConfig inner = algorithm_of(fields);
  const std::string algorithm = inner.string_or("quant_algo", "");
  Fp8Config config;
  if (algorithm.empty()) {
    fail_field(inner, "quant_algo", "ModelOpt's name of the algorithm", "State it: \"FP8\".");
  }
  if (algorithm == "FP8") {
    config.activation = ActivationQuant::kE4m3Static;
  } else if (algorithm == "NVFP4") {
    config.activation = ActivationQuant::kNone;
    config.fp4_group_size = inner.integer_or("group_size", kFp4Group, 1, kBlockMax);
    config.warnings.push_back(
        str(inner.where(), ": field '", field_path(inner, "quant_algo"),
            "': 4-bit float activations are not rounded: weights alone have 4 bits, which is more "
            "exact."));
  } else if (algorithm != "FP8_PER_CHANNEL_PER_TOKEN") {
    reject_field(inner, "quant_algo", "\"FP8\", \"FP8_PER_CHANNEL_PER_TOKEN\" or \"NVFP4\"",
                 kModelOptAdvice);
  }
  config.skips = SkipList(inner, first_present(inner, "exclude_modules", "ignore"));
  config.declared_kv = read_modelopt_kv(inner);
  config.summary = config.fp4_group_size > 0
                       ? str("ModelOpt, 4-bit floats (e2m1), group ", config.fp4_group_size)
                       : str("ModelOpt, ", describe(config));
  return config;
}

}  // namespace halley
