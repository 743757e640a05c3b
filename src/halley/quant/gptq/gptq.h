// The format "gptq": files of AutoGPTQ, GPTQModel, Optimum and transformers.
#pragma once

#include "halley/quant/base/format.h"

namespace halley {

/// Claims checkpoints whose quant_method is gptq or marlin. README.md has the tensors, the bits and
/// what is rejected.
extern const QuantFormat kQuantGptq;

}  // namespace halley
