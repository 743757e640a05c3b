// The quantization_config of GPTQ checkpoints, resolved layer by layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/name_pattern.h"
#include "halley/quant/base/quant_config.h"

namespace halley {

/// Layouts of zero points and codes (README.md).
enum class GptqStorage : uint8_t {
  kZeroMinusOne,  // checkpoint_format gptq: qzeros hold the zero point minus 1
  kZero,          // gptq_v2: qzeros hold the zero point
  kTiles,         // marlin: no zero points, codes in tiles of 16 inputs x 64 outputs
};

/// The value of checkpoint_format for a storage.
const char* name_of(GptqStorage storage);

/// Settings of one layer, or of all that no rule names.
struct GptqLayerSettings {
  int bits = 0;
  int64_t group_size = 0;             // as declared: -1 means all inputs
  std::optional<bool> is_symmetric;   // `sym`
  std::optional<bool> has_act_order;  // `desc_act`

  /// Inputs that share a scale in a layer of K inputs: at least 1, at most K.
  int64_t inputs_per_group(int64_t K) const;
};

class GptqSettings {
 public:
  /// Throws InputError where a field is wrong, missing or contradicts another, UnsupportedError
  /// where it asks for a layout or bits that are not supported.
  explicit GptqSettings(const QuantConfig& config);

  struct Layer {
    GptqLayerSettings settings;
    ConfigSays says = ConfigSays::kQuantized;
    std::string because;  // "field 'quantization_config.lm_head' is false"
  };
  Layer layer(const LinearSpec::Part& part) const;
  /// Settings of layers that no rule names.
  const GptqLayerSettings& defaults() const { return defaults_; }
  GptqStorage storage() const { return storage_; }
  /// "quantization_config.checkpoint_format"
  std::string field_path(const std::string& field) const { return prefix_ + field; }
  int64_t num_rules() const { return static_cast<int64_t>(rules_.size()); }

 private:
  /// An entry of `dynamic`; the first whose pattern matches counts.
  struct Rule {
    NamePattern pattern;
    std::string key;  // as it is written
    bool is_dense = false;
    std::optional<int> bits;
    std::optional<int64_t> group_size;
    std::optional<bool> is_symmetric, has_act_order;
  };

  void read_storage(const HfConfig& fields, const std::string& method);
  void read_rules(const HfConfig& fields);
  static Rule read_rule(const HfConfig& dynamic, const std::string& key);
  void read_listed_modules(const HfConfig& fields);
  void check_tiles(const HfConfig& fields, const GptqLayerSettings& settings) const;
  void ask_config(const LinearSpec::Part& part, Layer* layer) const;

  GptqLayerSettings defaults_;
  GptqStorage storage_ = GptqStorage::kZeroMinusOne;
  std::string prefix_;
  std::vector<Rule> rules_;
  std::vector<std::string> listed_modules_;  // modules_in_block_to_quantize; empty: all
  std::optional<bool> has_quantized_head_;   // `lm_head`
};

}  // namespace halley
