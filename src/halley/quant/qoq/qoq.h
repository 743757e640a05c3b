// The format "qoq": the W4A8 files of QServe (omniserve), per-channel and per-group (128).
#pragma once

#include "halley/quant/base/format.h"

namespace halley {

/// Claims quant_method "qoq". README.md describes the tensors.
extern const QuantFormat kQuantQoq;

}  // namespace halley
