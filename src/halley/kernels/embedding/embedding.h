// y[m] = table[ids[m]] * scale, read from a packed weight, so that a tied output layer and the
// embedding share one copy.
#pragma once

#include <cstdint>
#include <span>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"

namespace halley {

/// Shapes    table [V, K] in any layout; ids [M], each in [0, V); y [M, K] f32
/// Numerics  one rounding where it multiplies by `scale` (none where it is 1)
void embedding(ExecContext& context, const PackedWeight& table, std::span<const int32_t> ids,
               float scale, Matrix y);

}  // namespace halley
