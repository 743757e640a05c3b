#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"

namespace halley {
namespace {

constexpr size_t kFactorsMax = 1024;    // half a head's size
constexpr double kMagnitudeMax = 1e15;  // no sane parameter is larger
constexpr int64_t kPositionsMax = 1LL << 40;

double positive(const HfConfig& config, std::string_view field, double value) {
  if (!(value > 0.0 && value <= kMagnitudeMax)) {
    config.fail(field, str("expected a number in (0, ", kMagnitudeMax, "], got ", value, "."));
  }
  return value;
}

double positive_or(const HfConfig& config, std::string_view field, double fallback) {
  return config.has(field) ? positive(config, field, config.number(field)) : fallback;
}

std::optional<double> optional_positive(const HfConfig& config, std::string_view field) {
  if (!config.has(field)) return std::nullopt;
  return positive(config, field, config.number(field));
}

// DeepSeek's mscale fields may be 0.
std::optional<double> optional_not_negative(const HfConfig& config, std::string_view field) {
  if (!config.has(field)) return std::nullopt;
  const double value = config.number(field);
  if (!(value >= 0.0 && value <= kMagnitudeMax)) {
    config.fail(field, str("expected a number in [0, ", kMagnitudeMax, "], got ", value, "."));
  }
  return value;
}

std::vector<double> positive_values(const HfConfig& config, std::string_view field) {
  std::vector<double> values = config.numbers(field);
  if (values.size() > kFactorsMax) {
    config.fail(field, str("expected at most ", kFactorsMax, " numbers, got ", values.size(), "."));
  }
  for (const double value : values) positive(config, field, value);
  return values;
}

std::optional<int64_t> optional_positions(const HfConfig& config, std::string_view field) {
  if (!config.has(field)) return std::nullopt;
  return config.integer(field, 1, kPositionsMax);
}

// The source of the parameters: an object of their own, one of several for a layer type each, or
// none, which means the default type.
struct RopeSource {
  std::optional<HfConfig> parameters;
  bool is_per_layer_type = false;
};

RopeSource find_parameters(const HfConfig& config, std::string_view layer_type) {
  // The older name is looked at first, as transformers does: it may carry what the newer lacks.
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    std::optional<HfConfig> parameters = config.object(field);
    if (!parameters || parameters->json().empty()) continue;
    const Json& json = parameters->json();
    // No parameter is an object, so an object means one entry per layer type.
    if (std::none_of(json.begin(), json.end(), [](const Json& item) { return item.is_object(); })) {
      return {std::move(parameters), false};
    }
    std::optional<HfConfig> entry = parameters->object(layer_type);
    if (!entry) {
      config.fail(field, str("expected an entry for layer type ", halley::quote(layer_type),
                             ", got none among ", json.size(), "."));
    }
    return {std::move(entry), true};
  }
  return {};
}

// The names that `type` and `rope_type` have had.
std::string read_type(const HfConfig& parameters) {
  // Qwen2-VL writes "default" next to the sections that make it another type.
  if (parameters.has("mrope_section")) return "mrope";
  std::string type = parameters.string_or("rope_type", parameters.string_or("type", "default"));
  if (type == "su") type = "longrope";  // the first Phi-3 checkpoints
  return type;
}

bool has_original_length(const std::string& type) {
  return type == "llama3" || type == "yarn" || type == "longrope";
}

void read_parameters(const HfConfig& parameters, RopeConfig& rope) {
  rope.type = read_type(parameters);
  rope.theta = positive_or(parameters, "rope_theta", rope.theta);
  rope.partial_rotary_factor =
      positive_or(parameters, "partial_rotary_factor", rope.partial_rotary_factor);
  rope.factor = positive_or(parameters, "factor", rope.factor);
  rope.original_max_position_embeddings =
      optional_positions(parameters, "original_max_position_embeddings");
  rope.attention_factor = optional_positive(parameters, "attention_factor");
  rope.low_freq_factor = positive_or(parameters, "low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = positive_or(parameters, "high_freq_factor", rope.high_freq_factor);
  rope.beta_fast = positive_or(parameters, "beta_fast", rope.beta_fast);
  rope.beta_slow = positive_or(parameters, "beta_slow", rope.beta_slow);
  rope.mscale = optional_not_negative(parameters, "mscale");
  rope.mscale_all_dim = optional_not_negative(parameters, "mscale_all_dim");
  rope.truncate = parameters.boolean_or("truncate", rope.truncate);
  rope.short_factor = positive_values(parameters, "short_factor");
  rope.long_factor = positive_values(parameters, "long_factor");
}

// Adds the values that transformers takes from outside of the parameters: the original length
// (Phi-3 states it only there), else the length itself; and the factor of yarn and longrope as the
// ratio of the two.
void complete_lengths(const HfConfig& config, const RopeSource& source, RopeConfig& rope) {
  if (!has_original_length(rope.type)) return;
  const auto outer = source.is_per_layer_type
                         ? std::nullopt
                         : optional_positions(config, "original_max_position_embeddings");
  const auto length = optional_positions(config, "max_position_embeddings");
  auto& original = rope.original_max_position_embeddings;
  if (outer) original = outer;
  if (!original) original = length;
  if (rope.type != "llama3" && !source.parameters->has("factor") && original && length) {
    rope.factor = static_cast<double>(*length) / static_cast<double>(*original);
  }
}

}  // namespace

RopeConfig read_rope_config(const HfConfig& config, std::string_view layer_type,
                            double default_theta) {
  RopeConfig rope;
  rope.theta = positive_or(config, "rope_theta", default_theta);
  rope.partial_rotary_factor = positive_or(config, "partial_rotary_factor", 1.0);
  const RopeSource source = find_parameters(config, layer_type);
  // The older form's way to give sliding layers parameters of their own: never scaled.
  if (!source.is_per_layer_type && layer_type == "sliding_attention" &&
      config.has("rope_local_base_freq")) {
    rope.theta = positive_or(config, "rope_local_base_freq", default_theta);
  } else if (source.parameters) {
    read_parameters(*source.parameters, rope);
    complete_lengths(config, source, rope);
  }
  if (rope.partial_rotary_factor > 1.0) {
    config.fail("partial_rotary_factor",
                str("expected a number in (0, 1], got ", rope.partial_rotary_factor, "."));
  }
  return rope;
}

}  // namespace halley
