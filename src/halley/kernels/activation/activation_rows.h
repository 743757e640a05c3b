// The SIMD part of activation.h: ranges of rows on the caller's thread.
#pragma once

#include <cstdint>

#include "halley/core/matrix.h"
#include "halley/kernels/activation/activation.h"

namespace halley {

/// y = f(x) * factor for rows of `num_cols`; factor may be empty (data null): y = f(x). y may be x.
void activate_rows(Activation activation, ConstMatrix x, ConstMatrix factor, Matrix y);

/// x = cap * tanh(x / cap).
void soft_cap_rows(float cap, Matrix x);

}  // namespace halley
