// The quantization_config of an FP8 checkpoint, in the fields of either kind of tool.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/core/packed_weight.h"
#include "halley/quant/base/format.h"
#include "halley/quant/base/quant_config.h"
#include "halley/quant/fp8/skip_list.h"

namespace halley {

struct Fp8Config {
  ActivationQuant activation = ActivationQuant::kE4m3Token;
  /// Weights that share a scale; 0: the checkpoint has per-tensor or per-channel scales.
  int64_t block_rows = 0;
  int64_t block_inputs = 0;
  /// ModelOpt's NVFP4: weights are 4-bit floats in groups of so many inputs; 0: 8-bit floats.
  int64_t fp4_group_size = 0;
  SkipList skips;
  DeclaredKv declared_kv = DeclaredKv::kNothing;
  std::string summary;
  std::vector<std::string> warnings;
};

/// From quant_method "fp8": activation_scheme, weight_block_size, ignored_layers or
/// modules_to_not_convert, kv_cache_scheme. Throws InputError or UnsupportedError that names file
/// and field.
Fp8Config read_fp8_config(const HfConfig& fields);

/// From ModelOpt's hf_quant_config.json, or the same flat in config.json: quant_algo FP8,
/// FP8_PER_CHANNEL_PER_TOKEN or NVFP4. Throws as read_fp8_config().
Fp8Config read_modelopt_config(const HfConfig& fields);

}  // namespace halley
