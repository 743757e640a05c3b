// Writes QoQ files: a layer's tensors in QServe's tiles, and the declaration in config.json.
#pragma once

#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"

namespace halley {

/// Writes <name>.qweight and .s1_scales; per-channel also .s1_szeros, per-group (128, two levels of
/// scales) .s2_scales and .s2_zeros. s1_szeros holds scale * zero rounded to f16, so that a
/// per-channel file means w = scale * code - f16(scale * zero). Throws UnsupportedError for other
/// than 4 bits, for sizes of no whole tiles, for other groups, for groups whose inputs are not
/// consecutive and for scaled zeros beyond f16.
std::vector<CheckpointTensor> encode_qoq(const std::string& name, const QuantizedWeight& weight);

/// The quantization_config: QServe's fields and two of Halley's, kv_bits and modules_to_not_convert
/// (README.md). Throws UnsupportedError where a layer has settings of its own or the group is not
/// one of the format.
OrderedJson qoq_declaration(const WrittenFormat& format);

}  // namespace halley
