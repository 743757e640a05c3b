// The format "bitsandbytes": NF4 and FP4 with one or two levels of scales, and LLM.int8(), as
// transformers writes them.
#pragma once

#include "halley/quant/base/format.h"

namespace halley {

/// Claims "bitsandbytes" (and "bnb"). Which layers are quantized is decided from their tensors:
/// `<name>.weight.quant_map` is there for 4 bits, `<name>.SCB` for 8; the tool leaves more layers
/// in full precision than it lists. See README.md in this folder for the tensors.
extern const QuantFormat kQuantBitsAndBytes;

}  // namespace halley
