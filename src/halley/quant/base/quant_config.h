// The quantization that a checkpoint declares, wherever its tool wrote it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "halley/checkpoint/config/hf_config.h"

namespace halley {

struct QuantConfig {
  /// The declaration, or nothing where there is none: an unquantized checkpoint.
  std::optional<HfConfig> fields;
  /// `quant_method` in lower case; where it is missing, the method that the fields imply. Empty
  /// without fields.
  std::string method;

  /// For messages: file and field of the method.
  std::string where() const;
};

/// Looks in this order: `quantization_config` of config.json, the same in its `text_config`, then
/// quantize_config.json, quant_config.json and hf_quant_config.json in `model_dir` (empty: no
/// files). Without `quant_method` the fields imply the method: `config_groups`
/// compressed-tensors, `quant_algo` modelopt, `wbits` qoq, `zero_point` or an AWQ `version` awq,
/// other `bits` gptq. Throws InputError where a file is not valid or no field implies a method.
QuantConfig read_quant_config(const HfConfig& config, const std::filesystem::path& model_dir);

/// Reads one declaration: `fields` as it stands in a file.
QuantConfig quant_config_of(HfConfig fields);

}  // namespace halley
