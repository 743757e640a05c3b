#include "halley/quant/auto_round/auto_round.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"
#include "halley/quant/base/config_field.h"

namespace halley {
namespace {

constexpr std::array<std::string_view, 3> kMethods = {"auto-round", "auto_round",
                                                      "intel/auto-round"};
/// Layers of 16 bits and more are in full precision.
constexpr int64_t kFullBits = 16;
constexpr const char* kExportAgain =
    "Export the model again with the tool's format \"auto_round\", \"auto_gptq\" or \"auto_awq\" "
    "and "
    "integer weights.";
constexpr const char* kExportMore =
    "Export the model again with the tool's format \"auto_round\", which has settings for each "
    "layer.";

/// A layout, by the value of packing_format.
struct Packing {
  std::string_view name;
  const char* method;
  const char* checkpoint_format;  // of GPTQ
};
/// Older files name the kernel behind the layout: "auto_round:gptq:exllamav2".
constexpr std::array<Packing, 9> kPackings = {{
    {"auto_round:auto_gptq", "gptq", "gptq"},
    {"auto_round:gptq", "gptq", "gptq"},
    {"auto_round:auto_awq", "awq", ""},
    {"auto_round:awq", "awq", ""},
    {"auto_round:gptqmodel", "gptq", "gptq_v2"},
    {"auto_round:exllamav2", "gptq", "gptq_v2"},
    {"auto_round:triton", "gptq", "gptq_v2"},
    {"auto_round:torch", "gptq", "gptq_v2"},
    {"auto_round", "gptq", "gptq_v2"},
}};

const Packing& packing_of(const HfConfig& fields) {
  const char* field = fields.has("packing_format") ? "packing_format" : "backend";
  const std::string name = fields.string_or(field, "auto_round");
  for (const Packing& packing : kPackings) {
    if (name == packing.name) return packing;
    const bool has_kernel = packing.name.find(':') != std::string_view::npos;
    if (has_kernel && name.starts_with(str(packing.name, ":"))) return packing;
  }
  reject_field(fields, field, "\"auto_round\", \"auto_round:auto_gptq\" or \"auto_round:auto_awq\"",
               kExportAgain);
}

/// Rejects types and activations that the layouts do not have, of the whole or of one layer.
void check_types(const HfConfig& fields) {
  if (fields.string_or("data_type", "int") != "int") {
    reject_field(fields, "data_type", "\"int\"", kExportAgain);
  }
  if (fields.integer_or("act_bits", kFullBits, 0, 64) < kFullBits) {
    reject_field(fields, "act_bits", "16", kExportAgain);
  }
  for (const char* field : {"super_bits", "super_group_size", "rotation_config"}) {
    if (!fields.has(field) || fields.json().at(field).empty()) continue;
    reject_field(fields, field, "nothing", kExportAgain);
  }
}

/// Whether a key of extra_config is an expression; others are names of layers.
bool is_expression(std::string_view key) {
  return key.find_first_of("*^$|()[]?+\\") != std::string_view::npos;
}

/// An expression that matches this name alone.
std::string expression_of(const std::string& key) {
  if (is_expression(key)) return key;
  std::string expression = "^";
  for (const char c : key) {
    if (c == '.') expression += '\\';
    expression += c;
  }
  return expression + "$";
}

bool is_dense(const HfConfig& layer) { return layer.integer_or("bits", 0, 0, 64) >= kFullBits; }

/// Keys of extra_config: AutoRound asks names before expressions.
std::vector<std::string> keys_in_order(const HfConfig& layers) {
  std::vector<std::string> keys = layers.member_names();
  std::stable_partition(keys.begin(), keys.end(),
                        [](const std::string& key) { return !is_expression(key); });
  return keys;
}

/// Adds the settings of single layers as rules of GPTQ's `dynamic`, of which the first counts.
void add_gptq_rules(const HfConfig& fields, OrderedJson& gptq) {
  const auto layers = fields.object("extra_config");
  if (!layers) return;
  OrderedJson rules = OrderedJson::object();
  for (const std::string& key : keys_in_order(*layers)) {
    const auto layer = layers->object(key);
    if (!layer) continue;
    if (is_dense(*layer)) {
      rules["-:" + expression_of(key)] = OrderedJson::object();
      continue;
    }
    check_types(*layer);
    OrderedJson rule = OrderedJson::object();
    for (const char* name : {"bits", "group_size", "sym"}) {
      if (layer->has(name)) rule[name] = layer->json().at(name);
    }
    rules["+:" + expression_of(key)] = std::move(rule);
    if (key == "lm_head") gptq["lm_head"] = true;
  }
  if (!rules.empty()) gptq["dynamic"] = std::move(rules);
}

/// Names of the layers in full precision; AWQ has no other settings of single layers. AutoRound
/// lists what an expression matches by name, too.
OrderedJson list_dense_of_awq(const HfConfig& fields) {
  OrderedJson names = OrderedJson::array();
  const auto layers = fields.object("extra_config");
  if (!layers) return names;
  for (const std::string& key : layers->member_names()) {
    const auto layer = layers->object(key);
    if (!layer) continue;
    if (!is_dense(*layer)) {
      reject_field(*layers, key,
                   "the name of a layer of 16 bits in packing_format "
                   "\"auto_round:auto_awq\"",
                   kExportMore);
    }
    if (!is_expression(key)) names.push_back(key);
  }
  return names;
}

}  // namespace

std::optional<QuantConfig> translate_auto_round(const QuantConfig& config) {
  if (!config.fields) return std::nullopt;
  const HfConfig& fields = *config.fields;
  if (std::find(kMethods.begin(), kMethods.end(), config.method) == kMethods.end()) {
    return std::nullopt;
  }
  const Packing& packing = packing_of(fields);
  check_types(fields);
  OrderedJson other = {{"quant_method", packing.method}};
  for (const char* name : {"bits", "group_size"}) {
    if (fields.has(name)) other[name] = fields.json().at(name);
  }
  if (packing.method == std::string_view("gptq")) {
    other["sym"] = fields.boolean_or("sym", true);
    other["checkpoint_format"] = packing.checkpoint_format;
    add_gptq_rules(fields, other);
  } else {
    other["version"] = "gemm";
    other["zero_point"] = true;  // stored where the weights are symmetric, too
    other["modules_to_not_convert"] = list_dense_of_awq(fields);
  }
  // The same file and, but for nested configurations, the same fields in messages.
  if (fields.prefix().empty()) {
    return quant_config_of(HfConfig::parse(other.dump(), fields.where()));
  }
  const OrderedJson whole = {{"quantization_config", other}};
  return quant_config_of(
      *HfConfig::parse(whole.dump(), fields.where()).object("quantization_config"));
}

}  // namespace halley
