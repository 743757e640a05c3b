// Slow, f64, obvious: the definitions of norm.h for tests.
#pragma once

#include "halley/core/matrix.h"

namespace halley {

void rms_norm_reference(ConstMatrix x, const float* weight, float weight_offset, float epsilon,
                        Matrix y);
void layer_norm_reference(ConstMatrix x, const float* weight, const float* bias, float epsilon,
                          Matrix y);

}  // namespace halley
