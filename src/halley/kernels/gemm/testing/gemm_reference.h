// Slow, f64, obvious: the definition of a GEMM for tests.
#pragma once

#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"
#include "halley/core/precision.h"

namespace halley {

/// y from the definition. x is f32, and is first rounded as params_of() says (round_activations()
/// of activation_quant.h); W is read through unpack_row().
void gemm_reference(const PackedWeight& weight, const float* bias, ConstMatrix x, Matrix y,
                    Precision precision = Precision::kFull);

}  // namespace halley
