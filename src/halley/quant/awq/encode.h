// Writes AWQ files of version gemm: a layer's tensors and the declaration in config.json.
#pragma once

#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"

namespace halley {

/// Writes <name>.qweight, .qzeros and .scales; README.md has the order of the nibbles. Throws
/// UnsupportedError for other than 4 bits, for outputs that are no multiple of 8, for groups that
/// do not divide the inputs or whose inputs are not consecutive.
std::vector<CheckpointTensor> encode_awq(const std::string& name, const QuantizedWeight& weight);

/// The quantization_config; layers left out are in modules_to_not_convert. Throws UnsupportedError
/// where a layer has settings of its own, or where readers, which look for entries of the list
/// anywhere in a name, would leave out a quantized layer.
OrderedJson awq_declaration(const WrittenFormat& format);

}  // namespace halley
