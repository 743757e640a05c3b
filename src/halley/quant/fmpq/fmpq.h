// The format "fmpq": weights in 4 bits, activations in blocks of 4 and of 8 bits, as COMET's FMPQ.
#pragma once

#include "halley/quant/base/format.h"

namespace halley {

/// Claims quant_method "fmpq". docs/formats/fmpq.md describes the fields and tensors.
extern const QuantFormat kQuantFmpq;

}  // namespace halley
