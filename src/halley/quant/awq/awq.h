// The format "awq": files of AutoAWQ, llm-awq, GPTQModel and transformers.
#pragma once

#include "halley/quant/base/format.h"

namespace halley {

/// Claims checkpoints whose quant_method is awq. README.md has the tensors, the bits and what is
/// rejected.
extern const QuantFormat kQuantAwq;

}  // namespace halley
