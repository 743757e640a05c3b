#include "halley/models/lora/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr int64_t kRankMax = 4096;
constexpr double kAlphaMax = 1e6;

/// The fields of PEFT's LoraConfig.
struct KnownField {
  const char* name;
  /// Null: read below, or of no account for an adapter that is trained. Otherwise what the adapter
  /// would be if the field said anything but null, false, "none" or an empty list.
  const char* asks_for;
};

constexpr KnownField kKnownFields[] = {
    {"alora_invocation_tokens", "an adapter that begins at certain tokens (aLoRA)"},
    {"arrow_config", "a mixture of adapters (Arrow)"},
    {"auto_mapping", nullptr},
    {"base_model_name_or_path", nullptr},
    {"bias", "trained biases"},
    {"corda_config", nullptr},
    {"ensure_weight_tying", nullptr},
    {"eva_config", nullptr},
    {"exclude_modules", nullptr},
    {"fan_in_fan_out", "weights that are stored transposed"},
    {"inference_mode", nullptr},
    {"init_lora_weights", nullptr},
    {"kasa_config", "KaSA's singular values"},
    {"layer_replication", "layers that are repeated"},
    {"layers_pattern", nullptr},
    {"layers_to_transform", nullptr},
    {"loftq_config", nullptr},
    {"lora_alpha", nullptr},
    {"alpha_pattern", nullptr},
    {"lora_bias", "biases of the adapter's own"},
    {"lora_dropout", nullptr},
    {"lora_ga_config", nullptr},
    {"megatron_config", nullptr},
    {"megatron_core", nullptr},
    {"modules_to_save", "modules that were trained whole"},
    {"monteclora_config", "random weights (MonteCLoRA)"},
    {"peft_type", nullptr},
    {"peft_version", nullptr},
    {"qalora_group_size", nullptr},
    {"r", nullptr},
    {"rank_pattern", nullptr},
    {"revision", nullptr},
    {"runtime_config", nullptr},
    {"target_modules", nullptr},
    {"target_parameters", "additions to parameters that are not linear layers"},
    {"task_type", nullptr},
    {"trainable_token_indices", "trained embeddings of tokens"},
    {"use_bdlora", "factors in blocks (BD-LoRA)"},
    {"use_dora", "magnitudes of DoRA"},
    {"use_qalora", "QA-LoRA's pooled inputs"},
    {"use_rslora", nullptr},
    {"velora_config", nullptr},
};

bool says_nothing(const Json& value) {
  return value.is_null() || value == false || value == "none" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

void reject_fields(const HfConfig& config) {
  for (const std::string& name : config.member_names()) {
    const Json& value = config.json().at(name);
    const auto* field = std::find_if(std::begin(kKnownFields), std::end(kKnownFields),
                                     [&](const KnownField& known) { return known.name == name; });
    if (says_nothing(value)) continue;
    if (field == std::end(kKnownFields)) {
      throw UnsupportedError(
          str(config.where(), ": field ", quote(name), ": expected fields of PEFT's LoraConfig up ",
              "to 0.21, got an unknown one. If it does not change what the adapter adds, remove ",
              "it from the file."));
    }
    if (field->asks_for == nullptr) continue;
    throw UnsupportedError(str(config.where(), ": field ", quote(name), ": ", field->asks_for,
                               " are not supported. Merge the adapter into its base model with ",
                               "PEFT's merge_and_unload()."));
  }
}

/// Methods that start from other weights of the base model than its checkpoint's.
void check_base_is_unchanged(const HfConfig& config) {
  const auto field = config.json().find("init_lora_weights");
  if (field == config.json().end() || !field->is_string()) return;
  const auto method = field->get<std::string>();
  if (method == "gaussian" || method == "eva" || method == "orthogonal") return;
  throw UnsupportedError(str(
      config.where(), ": field 'init_lora_weights': expected a method that leaves the base ",
      "model's weights as they are (true, false, \"gaussian\", \"eva\", \"orthogonal\"), got ",
      quote(method), ". Save the adapter with PEFT's path_initial_model_for_weight_conversion, ",
      "which makes it one for the unchanged base model."));
}

double checked_alpha(const HfConfig& config, std::string_view field, double alpha) {
  if (!(alpha > 0 && alpha <= kAlphaMax)) {
    config.fail(field, str("expected a number above 0 and up to ", kAlphaMax, ", got ", alpha));
  }
  return alpha;
}

/// Names of layers, or their ends; PEFT takes regular expressions.
bool is_plain(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
}

std::vector<std::pair<std::string, double>> read_pattern(const HfConfig& config,
                                                         std::string_view field) {
  std::vector<std::pair<std::string, double>> pattern;
  const std::optional<HfConfig> object = config.object(field);
  if (!object) return pattern;
  for (const std::string& key : object->member_names()) {
    if (!is_plain(key)) {
      throw UnsupportedError(str(config.where(), ": field ", quote(str(field)), ": expected ",
                                 "names of layers, or their ends, got ", quote(key),
                                 ". Write one entry for each layer that it stands for."));
    }
    pattern.emplace_back(key, object->number(key));
  }
  return pattern;
}

std::optional<double> find_in(const std::vector<std::pair<std::string, double>>& pattern,
                              std::string_view layer) {
  for (const auto& [end, value] : pattern) {
    if (!layer.ends_with(end)) continue;
    const size_t rest = layer.size() - end.size();
    if (rest == 0 || layer[rest - 1] == '.') return value;
  }
  return std::nullopt;
}

}  // namespace

int64_t AdapterConfig::rank_of(std::string_view layer) const {
  const std::optional<double> own = find_in(rank_pattern, layer);
  return own ? static_cast<int64_t>(*own) : rank;
}

double AdapterConfig::factor_of(std::string_view layer) const {
  const auto r = static_cast<double>(rank_of(layer));
  return find_in(alpha_pattern, layer).value_or(alpha) / (is_rank_stabilized ? std::sqrt(r) : r);
}

AdapterConfig read_adapter_config(const HfConfig& config) {
  const std::string type = config.string("peft_type");
  if (type != "LORA") {
    throw UnsupportedError(str(config.where(), ": field 'peft_type': expected \"LORA\", got ",
                               quote(type), ". Merge the adapter into its base model."));
  }
  reject_fields(config);
  check_base_is_unchanged(config);
  AdapterConfig out;
  out.rank = config.integer("r", 1, kRankMax);
  out.alpha = checked_alpha(config, "lora_alpha", config.number("lora_alpha"));
  out.is_rank_stabilized = config.boolean_or("use_rslora", false);
  out.rank_pattern = read_pattern(config, "rank_pattern");
  out.alpha_pattern = read_pattern(config, "alpha_pattern");
  for (const auto& [layer, rank] : out.rank_pattern) {
    if (rank >= 1 && rank <= kRankMax && rank == std::floor(rank)) continue;
    config.fail("rank_pattern", str("expected integers of 1 to ", kRankMax, ", got ", rank));
  }
  for (const auto& [layer, alpha] : out.alpha_pattern) {
    checked_alpha(config, "alpha_pattern", alpha);
  }
  return out;
}

}  // namespace halley
