// A layer's input rounded to s4, s8 or e4m3 as its checkpoint asks (ActivationQuant,
// packed_weight.h): the definition, in plain f32 operations, that every kernel follows bit for bit.
#pragma once

#include <cstdint>
#include <span>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"

namespace halley {

/// Inputs that share a scale in kE4m3Group128 and kS4S8Block128.
inline constexpr int64_t kActivationGroup = 128;

/// The rounded values scale * code as f32 (one rounding), for one row of K inputs; in natural
/// order.
void round_activations(const QuantParams& quant, std::span<const float> x, float* rounded);

/// s8 codes of one row, and its scale; for kS8Token and kS8Static. A row that holds a NaN or an
/// infinity gets codes of zero and a scale of NaN.
float quantize_s8(const QuantParams& quant, std::span<const float> x, int8_t* codes);

/// What a kernel in f32 multiplies with the codes of a weight: the rows of x rounded as above, bit
/// for bit, and then in packed order (QuantParams::input_perm). [M, K] f32 both; may not overlap.
void prepare_activations(ExecContext& context, const QuantParams& quant, ConstMatrix x,
                         Matrix prepared);

}  // namespace halley
