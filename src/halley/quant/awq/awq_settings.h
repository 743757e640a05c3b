// What a configuration says of AWQ weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/quant_config.h"

namespace halley {

/// How codes, scales and zeros lie.
enum class AwqStorage : uint8_t {
  kByInput,      // version gemm, exllama, ipex: a word has 8 features of one input
  kByFeature,    // gemv: a word has 8 inputs of one feature
  kInterleaved,  // gemv_fast, llm-awq: four features take turns in 16-bit words
};

/// The value of `version` that means it.
const char* name_of(AwqStorage storage);

class AwqSettings {
 public:
  /// Throws InputError where a field is wrong, missing or contradicts another, UnsupportedError
  /// where it asks for what this room does not read.
  explicit AwqSettings(const QuantConfig& config);

  int64_t group_size() const { return group_size_; }  // as declared: -1 means all inputs
  /// Inputs that share a scale in a layer of K inputs: at least 1.
  int64_t inputs_per_group(int64_t K) const;
  bool has_zero_points() const { return has_zero_points_; }
  /// Nothing where the configuration does not tell it and the tensors must.
  std::optional<AwqStorage> storage() const { return storage_; }
  /// "quantization_config.version", or the field that tells the storage instead of it.
  const std::string& storage_field() const { return storage_field_; }
  std::string field_path(const std::string& field) const { return prefix_ + field; }

  struct Layer {
    ConfigSays says = ConfigSays::kEither;
    std::string because;  // "field 'quantization_config.modules_to_not_convert' holds "o_proj""
  };
  Layer layer(const LinearSpec::Part& part) const;

 private:
  void read_storage(const HfConfig& fields);

  std::string prefix_;
  int64_t group_size_ = 0;
  bool has_zero_points_ = true;
  std::optional<AwqStorage> storage_;
  std::string storage_field_;
  std::vector<std::string> skipped_;  // modules_to_not_convert
};

}  // namespace halley
