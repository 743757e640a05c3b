// The scale of rounded activations, from the largest magnitude that shares it. Internal to
// kernels/gemm.
#pragma once

#include "halley/core/packed_weight.h"

namespace halley {

/// Below it the reciprocal of a step could overflow; such rows have codes of zero.
inline constexpr float kSmallestMagnitude = 0x1p-100f;

/// x * inverse is the code before rounding; scale * code is the value that it stands for.
struct ActivationStep {
  float scale = 0;
  float inverse = 0;
};

/// `largest` is the largest magnitude of the values, not finite where one of them is not: then
/// scale is NaN, which every product with it keeps. It is NaN also for a static scale that is not
/// finite or below 2^-100, whose inverse could overflow. For the kinds other than kNone.
ActivationStep activation_step(const QuantParams& quant, float largest);

/// round_activations() for one row, in vectors; for the kinds other than kNone.
void round_activations_simd(const QuantParams& quant, const float* x, int64_t num_inputs,
                            float* rounded);

}  // namespace halley
