// config.json of a Hugging Face checkpoint: typed access to its fields with errors that name file
// and field. Knows no model family.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/json/json.h"
#include "halley/sampling/base/sampling_fields.h"

namespace halley {

/// One JSON object of a configuration and where it came from. Immutable, cheap to copy not implied.
/// Getters throw InputError as "<file>: field 'hidden_size': expected a positive integer, got ...".
/// JSON null counts as absent.
class HfConfig {
 public:
  /// Reads `<model_dir>/config.json`.
  static HfConfig load(const std::filesystem::path& model_dir);
  /// From text, for tests and built-in shapes; `where` is used in messages.
  static HfConfig parse(std::string_view text, const std::string& where);

  const std::string& where() const { return where_; }
  const Json& json() const { return json_; }
  /// "quantization_config." for a nested object; empty for a file's own.
  const std::string& prefix() const { return prefix_; }
  /// This object's members in the order in which the file has them.
  std::vector<std::string> member_names() const;
  bool has(std::string_view field) const;

  /// `model_type`; required.
  std::string model_type() const;
  /// `dtype` or the older `torch_dtype` ("float16", "bfloat16", "float32"), if any.
  std::optional<std::string> dtype() const;

  /// Required fields. Integers must lie in [min, max].
  int64_t integer(std::string_view field, int64_t min, int64_t max) const;
  double number(std::string_view field) const;
  std::string string(std::string_view field) const;
  /// Absent or null: the default.
  int64_t integer_or(std::string_view field, int64_t fallback, int64_t min, int64_t max) const;
  double number_or(std::string_view field, double fallback) const;
  bool boolean_or(std::string_view field, bool fallback) const;
  std::string string_or(std::string_view field, const std::string& fallback) const;
  /// Absent or null: empty. Otherwise an array of numbers / integers / strings.
  std::vector<double> numbers(std::string_view field) const;
  std::vector<int64_t> integers(std::string_view field) const;
  std::vector<std::string> strings(std::string_view field) const;
  /// A nested object, or nothing where it is absent or null. Its messages name "parent.field".
  std::optional<HfConfig> object(std::string_view field) const;

  /// Throws InputError "<file>: field 'x': <problem>".
  [[noreturn]] void fail(std::string_view field, const std::string& problem) const;

 private:
  HfConfig(Json json, std::string where, std::string prefix,
           std::shared_ptr<const std::string> text);
  const Json* find(std::string_view field) const;

  Json json_;
  std::string where_;
  std::string prefix_;                       // "text_config." inside a nested object
  std::vector<std::string> path_;            // the nested object's fields from the file's own
  std::shared_ptr<const std::string> text_;  // of the file, for the order of members
};

/// Rotary embedding parameters as config.json states them, in either form: `rope_parameters`
/// (transformers 5, possibly one per layer type) or `rope_theta` + `rope_scaling` (older, with
/// `type` or `rope_type`). Values are checked for range; what a type means is the models' business.
struct RopeConfig {
  std::string type = "default";  // default, linear, dynamic, yarn, longrope, llama3
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  double factor = 1.0;
  std::optional<int64_t> original_max_position_embeddings;
  std::optional<double> attention_factor;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  std::optional<double> mscale, mscale_all_dim;          // yarn
  bool truncate = true;                                  // yarn
  std::vector<double> short_factor, long_factor;         // longrope
};

/// `layer_type` picks the entry where rope_parameters holds one per layer type
/// ("full_attention", "sliding_attention"); empty otherwise. `default_theta` is what the family
/// assumes where no theta is given. As in transformers, llama3, yarn and longrope take the original
/// length from the configuration itself where it stands there, and yarn and longrope without a
/// factor take the ratio of max_position_embeddings to it. "su" is longrope; parameters with
/// `mrope_section` are "mrope". "sliding_attention" reads the older `rope_local_base_freq`.
RopeConfig read_rope_config(const HfConfig& config, std::string_view layer_type,
                            double default_theta);

/// generation_config.json, or the defaults where the file is absent.
struct GenerationConfig {
  std::vector<int32_t> eos_token_ids;  // from generation_config.json, else config.json
  std::optional<int32_t> bos_token_id;
  SamplingSettings sampling;  // of the parameters that the file has
  std::optional<bool> do_sample;
};
/// From a parsed file; `generation` is nullptr where there is none.
GenerationConfig read_generation_config(const HfConfig* generation, const HfConfig& config);
GenerationConfig load_generation_config(const std::filesystem::path& model_dir,
                                        const HfConfig& config);

}  // namespace halley
