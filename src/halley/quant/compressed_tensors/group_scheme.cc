#include <algorithm>
#include <array>

#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"
#include "halley/quant/compressed_tensors/scheme_config.h"

namespace halley {
namespace {

constexpr int64_t kSizeMax = 1 << 20;
constexpr int64_t kActivationGroup = 128;  // of ActivationQuant::kE4m3Group128
constexpr const char* kRequantize =
    "Quantize the model again with llm-compressor as W4A16, W8A8 or FP8.";

/// Formats that exist and are unsupported, with advice.
struct RejectedStorage {
  std::string_view format;
  const char* advice;
};
constexpr std::array<RejectedStorage, 8> kRejectedStorages = {{
    {"dense",
     "The weights were not compressed: save the model with save_compressed=True, or "
     "remove quantization_config to run it in full precision."},
    {"marlin-24",
     "Its weights are 2:4 sparse: quantize the model again without sparsity, as "
     "pack-quantized."},
    {"sparse-bitmask", "Decompress the model to full precision, or quantize it without sparsity."},
    {"sparse-24-bitmask",
     "Decompress the model to full precision, or quantize it without "
     "sparsity."},
    {"mxfp8-quantized", "Use a float-quantized (FP8) checkpoint of this model."},
    {"mxfp8-pack-quantized", "Use a float-quantized (FP8) checkpoint of this model."},
    {"nvfp4", "Use an FP8 or pack-quantized 4-bit checkpoint of this model."},
    {"mxfp4", "Use an FP8 or pack-quantized 4-bit checkpoint of this model."},
}};

/// The format of the group, else of the whole. "naive-quantized" holds one value in each byte or
/// 8-bit float, as int-quantized and float-quantized do, and the type of the weights says which.
CodeStorage storage_of(const HfConfig& group, const HfConfig& whole, const HfConfig& weights) {
  const HfConfig& owner = group.has("format") ? group : whole;
  const std::string format = owner.string_or("format", "");
  if (format == "pack-quantized") return CodeStorage::kPacked;
  if (format == "int-quantized") return CodeStorage::kInt8;
  if (format == "float-quantized") return CodeStorage::kFloat8;
  if (format == "nvfp4-pack-quantized") return CodeStorage::kNvFp4;
  if (format == "mxfp4-pack-quantized") return CodeStorage::kMxFp4;
  if (format == "naive-quantized") {
    return weights.string_or("type", "int") == "float" ? CodeStorage::kFloat8 : CodeStorage::kInt8;
  }
  const std::string expected =
      "\"pack-quantized\", \"int-quantized\", \"float-quantized\", \"naive-quantized\", "
      "\"nvfp4-pack-quantized\" or \"mxfp4-pack-quantized\" for the group or the whole "
      "configuration";
  if (format.empty() || format == "mixed-precision") {
    fail_field(group, "format", expected, "State it for each group.");
  }
  const auto* rejected =
      std::find_if(kRejectedStorages.begin(), kRejectedStorages.end(),
                   [&](const RejectedStorage& storage) { return storage.format == format; });
  const std::string advice = rejected == kRejectedStorages.end() ? kRequantize : rejected->advice;
  reject_field(owner, "format", expected, advice);
}

void read_type(const HfConfig& weights, GroupScheme& scheme) {
  const bool is_float = scheme.storage == CodeStorage::kFloat8 || scheme.is_float4();
  const std::string type = weights.string_or("type", "int");
  if (type != "int" && type != "float") {
    reject_field(weights, "type", "\"int\" or \"float\"", kRequantize);
  }
  if (type != (is_float ? "float" : "int")) {
    fail_field(weights, "type", is_float ? "\"float\" in this format" : "\"int\"",
               "Type and format must agree; correct the one that is wrong.");
  }
  scheme.bits = static_cast<int>(weights.integer("num_bits", 1, 64));
  const int bits = scheme.bits;
  if (scheme.storage == CodeStorage::kPacked && bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    reject_field(weights, "num_bits", "2, 3, 4 or 8 in pack-quantized", kRequantize);
  }
  // int-quantized of fewer bits has an i8 per value all the same.
  if (scheme.storage == CodeStorage::kInt8 && bits > 8) {
    reject_field(weights, "num_bits", "at most 8 in int-quantized", kRequantize);
  }
  if (is_float && bits != (scheme.is_float4() ? 4 : 8)) {
    reject_field(weights, "num_bits",
                 scheme.is_float4() ? "4 in formats of 4-bit floats" : "8 in float-quantized",
                 kRequantize);
  }
  scheme.is_symmetric = weights.boolean_or("symmetric", true);
  if (is_float && !scheme.is_symmetric) {
    reject_field(weights, "symmetric", "true for floats", kRequantize);
  }
  if (weights.boolean_or("dynamic", false)) {
    reject_field(weights, "dynamic", "false for weights", kRequantize);
  }
}

/// [n, k], or the older text "128x128".
void read_block(const HfConfig& weights, GroupScheme& scheme) {
  const auto is_size = [](int64_t size) { return size >= 1 && size <= kSizeMax; };
  std::vector<int64_t> block;
  const auto it = weights.json().find("block_structure");
  if (it != weights.json().end() && it->is_string()) {
    if (*it == "128x128") block = {128, 128};
  } else {
    block = weights.integers("block_structure");
  }
  if (block.size() != 2 || !is_size(block[0]) || !is_size(block[1])) {
    fail_field(weights, "block_structure", "two positive integers, [128, 128] as a rule",
               "Correct it: the shapes of weight_scale tell the size.");
  }
  scheme.block_rows = block[0];
  scheme.group_size = block[1];
}

/// The strategy, which older files leave to the group size.
std::string strategy_of(const HfConfig& weights) {
  if (weights.has("strategy")) return weights.string("strategy");
  const int64_t group_size = weights.integer_or("group_size", 0, -1, kSizeMax);
  return group_size > 0 ? "group" : group_size == -1 ? "channel" : "tensor";
}

/// Scales of 4-bit floats belong to groups, which NVFP4 calls "tensor_group" since there is a scale
/// for all of them too.
void read_float4_strategy(const HfConfig& weights, GroupScheme& scheme) {
  const bool is_nv = scheme.storage == CodeStorage::kNvFp4;
  const char* expected = is_nv ? "tensor_group" : "group";
  if (strategy_of(weights) != expected) {
    reject_field(weights, "strategy", quote(expected), kRequantize);
  }
  scheme.group_size = weights.integer_or("group_size", is_nv ? 16 : 32, 1, kSizeMax);
}

void read_strategy(const HfConfig& weights, GroupScheme& scheme) {
  if (scheme.is_float4()) return read_float4_strategy(weights, scheme);
  const std::string strategy = strategy_of(weights);
  if (strategy == "tensor") {
    scheme.block_rows = 0;
  } else if (strategy == "group") {
    scheme.group_size = weights.integer("group_size", -1, kSizeMax);
    if (scheme.group_size == -1) scheme.group_size = 0;
    if (scheme.group_size == 0 && weights.integer("group_size", -1, kSizeMax) == 0) {
      fail_field(weights, "group_size", "-1 or a positive integer",
                 "Correct it: the shapes of weight_scale tell the size.");
    }
  } else if (strategy == "block") {
    if (scheme.storage == CodeStorage::kPacked) {
      reject_field(weights, "strategy", "\"tensor\", \"channel\" or \"group\" in pack-quantized",
                   kRequantize);
    }
    read_block(weights, scheme);
  } else if (strategy != "channel") {
    reject_field(weights, "strategy", "\"tensor\", \"channel\", \"group\" or \"block\"",
                 kRequantize);
  }
}

/// Reads actorder: "group" stores a g_idx; "weight" was quantized in act-order with static groups
/// and stores none.
void read_perm(const HfConfig& weights, GroupScheme& scheme) {
  const auto it = weights.json().find("actorder");
  if (it == weights.json().end() || it->is_null()) return;
  if (it->is_boolean()) {
    scheme.has_input_perm = it->get<bool>();
  } else {
    const std::string order = weights.string("actorder");
    scheme.has_input_perm = order == "group" || order == "dynamic";
    if (!scheme.has_input_perm && order != "weight" && order != "static") {
      reject_field(weights, "actorder", "\"group\" or \"weight\"", kRequantize);
    }
  }
  if (!scheme.has_input_perm) return;
  if (scheme.storage != CodeStorage::kPacked || scheme.group_size == 0) {
    fail_field(weights, "actorder", "none, or pack-quantized weights with a group_size",
               "Correct the configuration.");
  }
}

ActivationQuant dynamic_activation(const HfConfig& inputs, bool is_float) {
  const std::string strategy = inputs.string_or("strategy", "token");
  if (strategy == "token") {
    return is_float ? ActivationQuant::kE4m3Token : ActivationQuant::kS8Token;
  }
  if (is_float && (strategy == "group" || strategy == "tensor_group")) {
    if (inputs.integer("group_size", -1, kSizeMax) == kActivationGroup && strategy == "group") {
      return ActivationQuant::kE4m3Group128;
    }
    reject_field(inputs, "group_size", "128 for activations in groups", kRequantize);
  }
  reject_field(inputs, "strategy",
               is_float ? "\"token\" or \"group\" for dynamic activations"
                        : "\"token\" for dynamic activations",
               kRequantize);
}

ActivationQuant activation_of(const HfConfig& group) {
  const auto inputs = group.object("input_activations");
  if (!inputs) return ActivationQuant::kNone;
  const std::string type = inputs->string_or("type", "int");
  if (type != "int" && type != "float") {
    fail_field(*inputs, "type", "\"int\" or \"float\"", "Correct the configuration.");
  }
  if (inputs->integer("num_bits", 1, 64) != 8) {
    reject_field(*inputs, "num_bits", "8 for activations", kRequantize);
  }
  if (!inputs->boolean_or("symmetric", true)) {
    reject_field(*inputs, "symmetric", "true for activations", kRequantize);
  }
  const auto it = inputs->json().find("dynamic");
  if (it != inputs->json().end() && it->is_string()) {
    reject_field(*inputs, "dynamic", "true or false", kRequantize);
  }
  const bool is_float = type == "float";
  if (inputs->boolean_or("dynamic", false)) return dynamic_activation(*inputs, is_float);
  if (inputs->string_or("strategy", "tensor") != "tensor") {
    reject_field(*inputs, "strategy", "\"tensor\" for static activations", kRequantize);
  }
  return is_float ? ActivationQuant::kE4m3Static : ActivationQuant::kS8Static;
}

/// Integers and 8-bit floats are not multiplied with each other (W4AFP8, say).
void check_types_agree(const HfConfig& group, const GroupScheme& scheme) {
  if (scheme.activation == ActivationQuant::kNone) return;
  const bool is_float = scheme.storage == CodeStorage::kFloat8;
  const bool is_int_input = scheme.activation == ActivationQuant::kS8Token ||
                            scheme.activation == ActivationQuant::kS8Static;
  if (is_float != is_int_input) return;
  reject_field(*group.object("input_activations"), "type",
               is_float ? "\"float\" for activations of floating-point weights"
                        : "\"int\" for activations of integer weights",
               kRequantize);
}

}  // namespace

GroupScheme read_group_scheme(const HfConfig& group, const HfConfig& whole) {
  GroupScheme scheme;
  scheme.path = group.prefix().substr(0, group.prefix().size() - 1);
  const auto weights = group.object("weights");
  if (!weights) {
    fail_field(group, "weights", "the scheme of the weights",
               "State it; activations alone are not quantized here.");
  }
  scheme.storage = storage_of(group, whole, *weights);
  read_type(*weights, scheme);
  read_strategy(*weights, scheme);
  read_perm(*weights, scheme);
  if (scheme.storage == CodeStorage::kPacked && !scheme.is_symmetric && scheme.block_rows == 0) {
    reject_field(*weights, "strategy", "\"channel\" or \"group\" where symmetric is false",
                 kRequantize);
  }
  if (group.object("output_activations")) {
    reject_field(group, "output_activations", "nothing", kRequantize);
  }
  const auto inputs = group.object("input_activations");
  if (scheme.is_float4() && inputs && inputs->integer("num_bits", 1, 64) == 4) {
    scheme.warning = str(group.where(), ": field '", field_path(group, "input_activations"),
                         "': 4-bit float activations are not rounded: weights alone have 4 bits, "
                         "which is more exact.");
    return scheme;
  }
  scheme.activation = activation_of(group);
  if (scheme.is_float4() && scheme.activation != ActivationQuant::kNone) {
    reject_field(group, "input_activations", "nothing, or 4-bit floats, with 4-bit float weights",
                 kRequantize);
  }
  check_types_agree(group, scheme);
  return scheme;
}

}  // namespace halley
