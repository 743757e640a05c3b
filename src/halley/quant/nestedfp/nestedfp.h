// The format "nestedfp": f16 weights in two planes of bytes; the upper plane alone is an FP8
// weight.
#pragma once

#include "halley/quant/base/format.h"

namespace halley {

/// Claims quant_method "nestedfp". docs/formats/nestedfp.md describes fields and tensors.
extern const QuantFormat kQuantNestedFp;

}  // namespace halley
