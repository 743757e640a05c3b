// Orthogonal matrices of entries +-1/sqrt(n).
#pragma once

#include <cstdint>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"

namespace halley {

/// Whether n is 2^a * m with m one of the sizes that are built in: 1, 12, 20, 28, 36, 44, 60.
bool has_hadamard(int64_t n);

/// Every row x becomes x H, H the n x n Hadamard matrix divided by sqrt(n) (Sylvester's for the
/// power of two, times a built-in one). Shape x [M, n] f32. The same bits for any threads.
void apply_hadamard(ExecContext& context, Matrix x);

}  // namespace halley
