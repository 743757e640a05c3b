// Slow, f64, obvious: the definitions of activation.h for tests.
#pragma once

#include "halley/core/matrix.h"
#include "halley/kernels/activation/activation.h"

namespace halley {

/// f(x) in f64; the limit 0 at -infinity.
double activation_reference(Activation activation, double x);

void gated_activation_reference(Activation activation, ConstMatrix gate_up, Matrix y);
void apply_activation_reference(Activation activation, Matrix x);
void apply_soft_cap_reference(float cap, Matrix x);

}  // namespace halley
