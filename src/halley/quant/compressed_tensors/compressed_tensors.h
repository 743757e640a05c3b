// The format "compressed-tensors": packed integers, 8-bit integers and 8-bit floats, a scheme for
// each group of layers, as llm-compressor writes them.
#pragma once

#include "halley/quant/base/format.h"

namespace halley {

/// Claims quant_method "compressed-tensors". README.md describes fields and tensors.
extern const QuantFormat kQuantCompressedTensors;

}  // namespace halley
