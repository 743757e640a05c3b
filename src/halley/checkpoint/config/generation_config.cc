#include <algorithm>
#include <limits>
#include <string>
#include <system_error>

#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/hf_config.h"

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

std::optional<double> read_number(const HfConfig& config, std::string_view field, double min,
                                  double max) {
  if (!config.has(field)) return std::nullopt;
  const double value = config.number(field);
  if (!(value >= min && value <= max)) {
    config.fail(field, str("expected a number in [", min, ", ", max, "], got ", value, "."));
  }
  return value;
}

}  // namespace

GenerationConfig read_generation_config(const HfConfig* generation, const HfConfig& config) {
  GenerationConfig result;
  if (generation != nullptr) {
    result.eos_token_ids = read_token_ids(*generation, "eos_token_id");
    result.bos_token_id = read_token_id(*generation, "bos_token_id");
    result.temperature = read_number(*generation, "temperature", 0.0, 1e6);
    result.top_p = read_number(*generation, "top_p", 0.0, 1.0);
    result.min_p = read_number(*generation, "min_p", 0.0, 1.0);
    result.repetition_penalty = read_number(*generation, "repetition_penalty", 1e-6, 1e6);
    if (generation->has("top_k")) {
      result.top_k = generation->integer("top_k", -1, kTokenIdMax);  // -1 and 0: no limit
    }
    if (generation->has("do_sample")) result.do_sample = generation->boolean_or("do_sample", false);
  }
  if (result.eos_token_ids.empty()) result.eos_token_ids = read_token_ids(config, "eos_token_id");
  if (!result.bos_token_id) result.bos_token_id = read_token_id(config, "bos_token_id");
  return result;
}

GenerationConfig load_generation_config(const std::filesystem::path& model_dir,
                                        const HfConfig& config) {
  const std::filesystem::path path = model_dir / "generation_config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return read_generation_config(nullptr, config);
  const HfConfig generation =
      HfConfig::parse(read_text_file(path, kGenerationConfigBytesMax), path.string());
  return read_generation_config(&generation, config);
}

}  // namespace halley
