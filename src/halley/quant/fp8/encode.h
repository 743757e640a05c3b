// Writes FP8 files with per-tensor scales: a layer's tensors and the declaration in config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"

namespace halley {

/// Rounds a weight [N, K] to e4m3 with the per-tensor scale max|w| / 448: <name>.weight,
/// .weight_scale and, where an input_scale is given (static activations), .input_scale. Per-channel
/// scales are written as compressed-tensors' float-quantized, since few other readers take them in
/// this format. Throws CheckpointError where a weight is NaN or infinite.
std::vector<CheckpointTensor> encode_fp8(const std::string& name, std::span<const float> weight,
                                         int64_t K, std::optional<float> input_scale);

/// The quantization_config; layers left out are in ignored_layers.
OrderedJson fp8_declaration(const WrittenFormat& format);

}  // namespace halley
