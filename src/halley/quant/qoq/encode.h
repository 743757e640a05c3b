// Writing QoQ files: a layer's tensors in QServe's tiles, and the declaration in config.json.
#pragma once

#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"

namespace halley {

/// <name>.qweight and .s1_scales; per output .s1_szeros, in groups of 128 with two levels of scales
/// .s2_scales and .s2_zeros. The product scale * zero of s1_szeros is rounded to f16: per output
/// the file means w = scale * code - f16(scale * zero). Throws UnsupportedError for other than 4
/// bits, for sizes of no whole tiles, for other groups, for groups whose inputs are not neighbours
/// and for scaled zeros beyond f16.
std::vector<CheckpointTensor> encode_qoq(const std::string& name, const QuantizedWeight& weight);

/// The quantization_config. Beside QServe's fields it has kv_bits and modules_to_not_convert
/// (README.md). Throws UnsupportedError where a layer has settings of its own or the group is not
/// one of the format.
OrderedJson qoq_declaration(const WrittenFormat& format);

}  // namespace halley
