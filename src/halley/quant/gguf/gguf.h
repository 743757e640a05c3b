// The format "gguf": the quantized types of GGUF files.
#pragma once

#include "halley/quant/base/format.h"

namespace halley {

/// Claims the configuration that checkpoint/gguf makes of a file with quantized tensors. README.md
/// has the types and the layouts that hold them.
extern const QuantFormat kQuantGguf;

}  // namespace halley
