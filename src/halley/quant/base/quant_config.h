// What a checkpoint states of its quantization, wherever its tool wrote it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "halley/checkpoint/config/hf_config.h"

namespace halley {

struct QuantConfig {
  /// The declaration, or nothing where there is none: an unquantized checkpoint.
  std::optional<HfConfig> fields;
  /// `quant_method` in lower case, or what the fields tell where it is missing. Empty without
  /// fields.
  std::string method;

  /// For messages: file and field of the method.
  std::string where() const;
};

/// Looks in this order: `quantization_config` of config.json, the same in its `text_config`, then
/// quantize_config.json, quant_config.json and hf_quant_config.json in `model_dir` (empty: no
/// files). A declaration without `quant_method` is told by its fields: `config_groups`
/// compressed-tensors, `quant_algo` modelopt, `wbits` qoq, `zero_point` or an AWQ `version` awq,
/// other `bits` gptq. Throws InputError where a file is not valid or nothing tells the method.
QuantConfig read_quant_config(const HfConfig& config, const std::filesystem::path& model_dir);

/// From one declaration: `fields` as it stands in a file.
QuantConfig quant_config_of(HfConfig fields);

}  // namespace halley
