#include "halley/quant/gptq/gptq_settings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"

namespace halley {
namespace {

constexpr size_t kListedModulesMax = 65'536;
constexpr int64_t kGroupSizeMax = int64_t{1} << 31;

/// Formats of the same tools with other layouts: unsupported, with advice.
struct OtherFormat {
  std::string_view name;
  const char* advice;
};
constexpr const char* kUseGptq = "Convert it to checkpoint_format gptq or gptq_v2 with its tool.";
constexpr const char* kUseAwq = "These are AWQ layouts: state quant_method awq if it is one.";
constexpr std::array<OtherFormat, 14> kOtherFormats = {{
    {"gptq_p", "Its codes lie in bit planes; export with 2, 3, 4 or 8 bits as gptq_v2."},
    {"bitblas", kUseGptq},
    {"qqq", kUseGptq},
    {"exl2", "Use a GPTQ checkpoint of this model."},
    {"exl3", "Use a GPTQ checkpoint of this model."},
    {"gguf", "Use a GPTQ checkpoint of this model, or the unquantized one."},
    {"fp8", "State quant_method fp8 if its weights are of an 8-bit float type."},
    {"bitsandbytes", "Use a GPTQ checkpoint of this model, or the unquantized one."},
    {"paroquant", "Use a GPTQ checkpoint of this model, or the unquantized one."},
    {"gemm", kUseAwq},
    {"gemv", kUseAwq},
    {"gemv_fast", kUseAwq},
    {"llm-awq", kUseAwq},
    {"marlin_24", "Sparse weights are not read; use a dense GPTQ checkpoint of this model."},
}};

std::optional<bool> boolean_if_any(const HfConfig& fields, std::string_view field) {
  if (!fields.has(field)) return std::nullopt;
  return fields.boolean_or(field, false);
}

int read_bits(const HfConfig& fields, const char* field) {
  const auto bits = static_cast<int>(fields.integer(field, 1, 64));
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    reject_as(fields, field,
              str("expected 2, 3, 4 or 8, got ", bits,
                  ". Use a checkpoint with one of these numbers of bits."));
  }
  return bits;
}

int64_t read_group_size(const HfConfig& fields, const char* field) {
  const int64_t size = fields.integer(field, -1, kGroupSizeMax);
  if (size == 0) fields.fail(field, "expected -1 for all inputs, or a group's inputs, got 0.");
  return size;
}

/// "self_attn.q_proj" names "model.layers.0.self_attn.q_proj".
bool names_module(std::string_view ending, std::string_view name) {
  if (!name.ends_with(ending)) return false;
  return name.size() == ending.size() || name[name.size() - ending.size() - 1] == '.';
}

bool is_output_layer(std::string_view name) { return names_module("lm_head", name); }

}  // namespace

const char* name_of(GptqStorage storage) {
  switch (storage) {
    case GptqStorage::kZeroMinusOne:
      return "gptq";
    case GptqStorage::kZero:
      return "gptq_v2";
    case GptqStorage::kTiles:
      return "marlin";
  }
  return "";
}

int64_t GptqLayerSettings::inputs_per_group(int64_t K) const {
  const int64_t size = group_size == -1 ? K : std::min(group_size, K);
  return std::max<int64_t>(1, size);
}

GptqSettings::GptqSettings(const QuantConfig& config) : prefix_(config.fields->prefix()) {
  const HfConfig& fields = *config.fields;
  defaults_.bits = read_bits(fields, declared_name(fields, "bits", "w_bit"));
  defaults_.group_size =
      read_group_size(fields, declared_name(fields, "group_size", "q_group_size"));
  defaults_.is_symmetric = boolean_if_any(fields, "sym");
  defaults_.has_act_order = boolean_if_any(fields, "desc_act");
  has_quantized_head_ = boolean_if_any(fields, "lm_head");
  if (fields.has("pack_dtype") && lower_case(fields.string("pack_dtype")) != "int32") {
    reject_as(fields, "pack_dtype",
              str("expected \"int32\", got ", quote(fields.string("pack_dtype")),
                  ". Export the checkpoint with int32 words."));
  }
  read_storage(fields, config.method);
  read_rules(fields);
  read_listed_modules(fields);
}

void GptqSettings::read_storage(const HfConfig& fields, const std::string& method) {
  const char* field = declared_name(fields, "checkpoint_format", "format");
  const bool is_marked = fields.boolean_or("is_marlin_format", false) || method == "marlin";
  const std::string name = lower_case(fields.string_or(field, is_marked ? "marlin" : "gptq"));
  if (name == "gptq") {
    storage_ = GptqStorage::kZeroMinusOne;
  } else if (name == "gptq_v2") {
    storage_ = GptqStorage::kZero;
  } else if (name == "marlin") {
    storage_ = GptqStorage::kTiles;
    check_tiles(fields, defaults_);
  } else {
    const char* advice = kUseGptq;
    for (const OtherFormat& other : kOtherFormats) {
      if (name == other.name) advice = other.advice;
    }
    reject_as(fields, field,
              str("expected \"gptq\", \"gptq_v2\" or \"marlin\", got ", quote(name), ". ", advice));
  }
  if (is_marked && storage_ != GptqStorage::kTiles) {
    fields.fail(field, str("expected \"marlin\", since 'is_marlin_format' or the method says so, "
                           "got ",
                           quote(name), ". Remove one."));
  }
}

void GptqSettings::check_tiles(const HfConfig& fields, const GptqLayerSettings& settings) const {
  const char* advice =
      "Marlin tiles hold nothing else; use a checkpoint of checkpoint_format gptq.";
  if (settings.bits != 4)
    reject_as(fields, "bits", str("expected 4, got ", settings.bits, ". ", advice));
  if (settings.is_symmetric == false) {
    reject_as(fields, "sym", str("expected true, got false. ", advice));
  }
  if (settings.has_act_order == true && settings.group_size != -1) {
    reject_as(fields, "desc_act", str("expected false, got true. ", advice));
  }
}

void GptqSettings::read_rules(const HfConfig& fields) {
  const auto dynamic = fields.object("dynamic");
  if (!dynamic) return;
  for (const std::string& key : dynamic->member_names()) {
    rules_.push_back(read_rule(*dynamic, key));
  }
  if (storage_ != GptqStorage::kTiles) return;
  for (const Rule& rule : rules_) {
    GptqLayerSettings settings = defaults_;
    settings.bits = rule.bits.value_or(settings.bits);
    if (rule.is_symmetric) settings.is_symmetric = rule.is_symmetric;
    if (rule.has_act_order) settings.has_act_order = rule.has_act_order;
    check_tiles(*dynamic->object(rule.key), settings);
  }
}

GptqSettings::Rule GptqSettings::read_rule(const HfConfig& dynamic, const std::string& key) {
  const bool is_marked = key.starts_with("+:") || key.starts_with("-:");
  const std::string where = str(dynamic.where(), ": field '", dynamic.prefix(), quote(key), "'");
  Rule rule = {.pattern = NamePattern::regex(key.substr(is_marked ? 2 : 0), where),
               .key = key,
               .is_dense = key.starts_with("-:"),
               .bits = {},
               .group_size = {},
               .is_symmetric = {},
               .has_act_order = {}};
  const auto values = dynamic.object(key);
  if (rule.is_dense || !values) return rule;
  // Options of the quantizer that do not change how the file is read.
  constexpr std::array<std::string_view, 6> kOfQuantizer = {
      "damp_percent", "damp_auto_increment", "static_groups",
      "mse",          "act_group_aware",     "true_sequential"};
  for (const auto& member : values->json().items()) {
    const std::string& name = member.key();
    if (name == "bits") {
      if (values->has(name)) rule.bits = read_bits(*values, "bits");
    } else if (name == "group_size") {
      if (values->has(name)) rule.group_size = read_group_size(*values, "group_size");
    } else if (name == "sym") {
      rule.is_symmetric = boolean_if_any(*values, name);
    } else if (name == "desc_act") {
      rule.has_act_order = boolean_if_any(*values, name);
    } else if (std::find(kOfQuantizer.begin(), kOfQuantizer.end(), name) == kOfQuantizer.end()) {
      throw UnsupportedError(str(where,
                                 ": expected the keys bits, group_size, desc_act and sym, "
                                 "got ",
                                 quote(name), ". Remove it if the weights do not depend on it."));
    }
  }
  return rule;
}

void GptqSettings::read_listed_modules(const HfConfig& fields) {
  constexpr const char* kField = "modules_in_block_to_quantize";
  if (!fields.has(kField)) return;
  const auto fail = [&] {
    fields.fail(kField, str("expected a list of lists of module names, at most ", kListedModulesMax,
                            " in all."));
  };
  const auto add = [&](const Json& name) {
    if (!name.is_string() || listed_modules_.size() >= kListedModulesMax) fail();
    listed_modules_.push_back(name.get<std::string>());
  };
  const Json& value = fields.json().at(kField);
  if (!value.is_array()) fail();
  for (const Json& item : value) {
    if (!item.is_array()) {
      add(item);
      continue;
    }
    for (const Json& name : item) add(name);
  }
}

GptqSettings::Layer GptqSettings::layer(const LinearSpec::Part& part) const {
  Layer layer = {.settings = defaults_, .says = ConfigSays::kQuantized, .because = {}};
  for (const Rule& rule : rules_) {
    if (!rule.pattern.matches(part.name)) continue;
    if (rule.is_dense) {
      layer.says = ConfigSays::kDense;
      layer.because = str("field '", prefix_, "dynamic' holds ", quote(rule.key));
      return layer;
    }
    GptqLayerSettings& settings = layer.settings;
    settings.bits = rule.bits.value_or(settings.bits);
    settings.group_size = rule.group_size.value_or(settings.group_size);
    if (rule.is_symmetric) settings.is_symmetric = rule.is_symmetric;
    if (rule.has_act_order) settings.has_act_order = rule.has_act_order;
    break;
  }
  ask_config(part, &layer);
  return layer;
}

void GptqSettings::ask_config(const LinearSpec::Part& part, Layer* layer) const {
  if (is_output_layer(part.name) && has_quantized_head_) {
    layer->says = *has_quantized_head_ ? ConfigSays::kQuantized : ConfigSays::kDense;
    layer->because =
        str("field '", prefix_, "lm_head' is ", *has_quantized_head_ ? "true" : "false");
    return;
  }
  const bool is_listed =
      std::any_of(listed_modules_.begin(), listed_modules_.end(),
                  [&](const std::string& module) { return names_module(module, part.name); });
  if (!listed_modules_.empty() && !is_output_layer(part.name)) {
    layer->says = is_listed ? ConfigSays::kQuantized : ConfigSays::kDense;
    layer->because = str("field '", prefix_, "modules_in_block_to_quantize' ",
                         is_listed ? "lists it" : "does not list it");
    return;
  }
  if (part.is_usually_dense) {
    layer->says = ConfigSays::kEither;
    return;
  }
  layer->because = str("field '", prefix_, "quant_method' covers it and no field leaves it out");
}

}  // namespace halley
