#include <algorithm>
#include <limits>
#include <string>
#include <variant>

#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/gguf/model_files.h"

namespace halley {
namespace {

constexpr size_t kGenerationConfigBytesMax = 4 << 20;
constexpr size_t kEosTokensMax = 1024;
constexpr int64_t kTokenIdMax = std::numeric_limits<int32_t>::max();

// One id or a list of them. Ids that stand twice count once.
std::vector<int32_t> read_token_ids(const HfConfig& config, std::string_view field) {
  std::vector<int32_t> ids;
  if (!config.has(field)) return ids;
  if (!config.json().at(std::string(field)).is_array()) {
    ids.push_back(static_cast<int32_t>(config.integer(field, 0, kTokenIdMax)));
    return ids;
  }
  const std::vector<int64_t> values = config.integers(field);
  if (values.size() > kEosTokensMax) {
    config.fail(field, str("expected at most ", kEosTokensMax, " ids, got ", values.size(), "."));
  }
  for (const int64_t id : values) {
    if (id < 0 || id > kTokenIdMax) {
      config.fail(field, str("expected ids in [0, ", kTokenIdMax, "], got ", id, "."));
    }
    if (std::find(ids.begin(), ids.end(), static_cast<int32_t>(id)) == ids.end()) {
      ids.push_back(static_cast<int32_t>(id));
    }
  }
  return ids;
}

std::optional<int32_t> read_token_id(const HfConfig& config, std::string_view field) {
  if (!config.has(field)) return std::nullopt;
  return static_cast<int32_t>(config.integer(field, 0, kTokenIdMax));
}

double read_number(const HfConfig& config, std::string_view field, const ParamRange& range) {
  const double value = config.number(field);
  if (!(value >= range.min && value <= range.max)) {
    config.fail(field,
                str("expected a number in [", range.min, ", ", range.max, "], got ", value, "."));
  }
  return value;
}

SamplingSettings read_sampling(const HfConfig& config) {
  SamplingSettings settings;
  for (const SamplingField& field : sampling_fields()) {
    if (!field.range_in_model || !config.has(field.name)) continue;
    const ParamRange& range = *field.range_in_model;
    if (std::holds_alternative<double ChoiceParams::*>(field.member)) {
      settings.push_back({&field, read_number(config, field.name, range)});
    } else {
      settings.push_back({&field, config.integer(field.name, static_cast<int64_t>(range.min),
                                                 static_cast<int64_t>(range.max))});
    }
  }
  return settings;
}

/// Adds those that are not known yet.
void add_token_ids(const HfConfig& config, GenerationConfig& result) {
  if (result.eos_token_ids.empty()) result.eos_token_ids = read_token_ids(config, "eos_token_id");
  if (!result.bos_token_id) result.bos_token_id = read_token_id(config, "bos_token_id");
}

}  // namespace

GenerationConfig read_generation_config(const HfConfig* generation, const HfConfig& config) {
  GenerationConfig result;
  if (generation != nullptr) {
    result.eos_token_ids = read_token_ids(*generation, "eos_token_id");
    result.bos_token_id = read_token_id(*generation, "bos_token_id");
    result.sampling = read_sampling(*generation);
    if (generation->has("do_sample")) result.do_sample = generation->boolean_or("do_sample", false);
  }
  add_token_ids(config, result);
  // Models with more parts than text may have the ids where the text model's sizes are.
  if (const auto text = config.object("text_config")) add_token_ids(*text, result);
  return result;
}

GenerationConfig load_generation_config(const std::filesystem::path& model_dir,
                                        const HfConfig& config) {
  constexpr const char* kName = "generation_config.json";
  if (!has_model_file(model_dir, kName)) return read_generation_config(nullptr, config);
  const HfConfig generation = HfConfig::parse(
      read_model_file(model_dir, kName, kGenerationConfigBytesMax), (model_dir / kName).string());
  return read_generation_config(&generation, config);
}

}  // namespace halley
