// The scale of rounded activations, from the largest magnitude that shares it. Internal to
// kernels/gemm.
#pragma once

#include "halley/core/packed_weight.h"

namespace halley {

/// Below it the reciprocal of a step could overflow; such rows are quantized to zeros.
inline constexpr float kSmallestMagnitude = 0x1p-100f;

/// x * inverse is the quantized value before rounding; scale dequantizes it.
struct ActivationStep {
  float scale = 0;
  float inverse = 0;
};

/// `largest` is the largest magnitude of the values, not finite where one of them is not: then
/// scale is NaN, which every multiplication by it keeps. It is NaN also for a static scale that is
/// not finite or below 2^-100, whose inverse could overflow. For the kinds with per-token or
/// per-group scales.
ActivationStep activation_step(const QuantParams& quant, float largest);

/// The smallest and the largest quantized value of an integer type.
struct QuantLimits {
  float smallest = 0;
  float largest = 0;
};
inline constexpr QuantLimits kS8Limits = {-128.0f, 127.0f};
inline constexpr QuantLimits kS4Limits = {-8.0f, 7.0f};

/// kS4S8Block128: whether the block that begins with packed input `begin` has 8 bits, its range of
/// quantized values, and its step as above.
inline bool is_s8_block(const QuantParams& quant, int64_t begin) {
  return begin < quant.num_s8_inputs;
}
inline QuantLimits block_limits(const QuantParams& quant, int64_t begin) {
  return is_s8_block(quant, begin) ? kS8Limits : kS4Limits;
}
ActivationStep block_step(const QuantParams& quant, int64_t begin, float largest);

/// round_activations() for one row, in vectors; for the kinds other than kNone. x and `rounded` are
/// in packed order for kS4S8Block128. `row_magnitude` as in ExecContext, 0: x is the whole row.
void round_activations_simd(const QuantParams& quant, const float* x, int64_t num_inputs,
                            float* rounded, float row_magnitude = 0);

}  // namespace halley
