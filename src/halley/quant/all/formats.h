// Which format a checkpoint is in: the table of all rooms.
#pragma once

#include <memory>

#include "halley/quant/base/format.h"

namespace halley {

/// The one scheme that claims the checkpoint. Throws UnsupportedError where config.json names a
/// quantization that no room knows, CheckpointError where two claim it.
std::unique_ptr<QuantScheme> detect_quant_scheme(const HfConfig& config,
                                                 const TensorSource& source);

}  // namespace halley
