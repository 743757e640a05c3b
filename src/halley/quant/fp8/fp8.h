// The format "fp8": weights in e4m3 with per-tensor, per-channel or per-block scales, from the
// tools that write quant_method "fp8" and from ModelOpt.
#pragma once

#include "halley/quant/base/format.h"

namespace halley {

/// Claims quant_method "fp8", and "modelopt" (rejecting its other algorithms by name). README.md
/// describes fields and tensors.
extern const QuantFormat kQuantFp8;

}  // namespace halley
