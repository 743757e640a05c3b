// A weight in full precision that is rounded while it is read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "halley/quant/at_load/at_load.h"
#include "halley/quant/base/stored_weight.h"

namespace halley {

/// The weight of `dense`, rounded; `where` names it in messages. Rows are rounded by the threads
/// that pack them. check_data() throws CheckpointError for NaN and infinities.
std::unique_ptr<StoredWeight> round_weight(std::unique_ptr<StoredWeight> dense,
                                           const AtLoadMethod& method, std::string where);

/// Empty where the two planes of method "nestedfp" hold every value of a weight in full precision,
/// after rounding to f16; otherwise why not. Reads the weight.
std::string why_not_nested(const StoredWeight& dense);

/// The weight as it is, with a warning.
std::unique_ptr<StoredWeight> keep_weight(std::unique_ptr<StoredWeight> dense, std::string warning);

/// The inputs that share a scale where `group_size` are asked for, 0: all.
int64_t fitting_group(int64_t group_size, int64_t num_inputs);

}  // namespace halley
