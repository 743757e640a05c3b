// Writes GPTQ files: a layer's tensors and the declaration in config.json, as AutoGPTQ does.
#pragma once

#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"

namespace halley {

/// Writes <name>.qweight, .qzeros (zero - 1 in each field), .scales and .g_idx of checkpoint_format
/// gptq; README.md has the bits. Throws UnsupportedError for other bits than 2, 3, 4 and 8, for
/// outputs or inputs that are no multiple of 32 and for groups that do not divide the inputs: other
/// servers do not load them.
std::vector<CheckpointTensor> encode_gptq(const std::string& name, const QuantizedWeight& weight);

/// The quantization_config. Layers left out and layers with settings of their own become rules of
/// `dynamic`.
OrderedJson gptq_declaration(const WrittenFormat& format);

}  // namespace halley
