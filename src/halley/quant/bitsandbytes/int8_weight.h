// Weights of LLM.int8(): 8 bits with per-channel scales.
#pragma once

#include <memory>

#include "halley/quant/base/linear_spec.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

bool has_int8_weight(const TensorSource& source, const LinearSpec::Part& part);

/// w = SCB / 127 * code. Throws CheckpointError where a tensor is missing or of another type or
/// shape, UnsupportedError where the file has the codes in a GPU's order; check_data() where a
/// scale is not finite.
std::unique_ptr<StoredWeight> open_int8_weight(const TensorSource& source,
                                               const LinearSpec::Part& part, int64_t in_features);

}  // namespace halley
