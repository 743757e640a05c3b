// Writes GPTQ files: a layer's tensors and the declaration in config.json, as GPTQModel does.
#pragma once

#include <string>
#include <vector>

#include "halley/json/json.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/base/written_format.h"
#include "halley/quant/gptq/gptq_settings.h"

namespace halley {

/// The storage of a file: gptq where every weight is symmetric, since all readers take it; gptq_v2
/// where any has zero points, since some readers of gptq reject these, and others add 1 to whole
/// words, so that a zero point of 0 spoils those behind it.
GptqStorage gptq_storage(bool has_zero_points);

/// Writes <name>.qweight, .qzeros (zero - 1 or zero in each field, as the storage has it), .scales
/// and .g_idx; README.md has the bits. Throws UnsupportedError for other bits than 2, 3, 4 and 8,
/// for outputs or inputs that are no multiple of 32 and for groups that do not divide the inputs:
/// other servers do not load them. Requires another storage than kTiles.
std::vector<CheckpointTensor> encode_gptq(const std::string& name, const QuantizedWeight& weight,
                                          GptqStorage storage);

/// The quantization_config. Layers left out and layers with settings of their own become rules of
/// `dynamic`.
OrderedJson gptq_declaration(const WrittenFormat& format);

}  // namespace halley
