// The quantization_config of AWQ checkpoints.
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

/// Layouts of qweight, scales and zero points (README.md).
enum class AwqStorage : uint8_t {
  kByInput,      // version gemm, exllama, ipex: a word packs 8 outputs of one input
  kByFeature,    // gemv: a word packs 8 inputs of one output
  kInterleaved,  // gemv_fast, llm-awq: four outputs interleaved in 16-bit words
};

/// The value of `version` for a storage.
const char* name_of(AwqStorage storage);

class AwqSettings {
 public:
  /// Throws InputError where a field is wrong, missing or contradicts another, UnsupportedError
  /// where it asks for a layout or bits that are not supported.
  explicit AwqSettings(const QuantConfig& config);

  int64_t group_size() const { return group_size_; }  // as declared: -1 means all inputs
  /// Inputs that share a scale in a layer of K inputs: at least 1.
  int64_t inputs_per_group(int64_t K) const;
  bool has_zero_points() const { return has_zero_points_; }
  /// The declared layout; nothing where only the tensors can tell it.
  std::optional<AwqStorage> storage() const { return storage_; }
  /// "quantization_config.version", or the field that declares the storage in its stead.
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
