// Defines activation quantization to s4, s8 or e4m3 (ActivationQuant, packed_weight.h) in plain f32
// operations; every kernel follows it bit for bit.
#pragma once

#include <cstdint>
#include <span>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"

namespace halley {

/// Inputs that share a scale in kE4m3Group128 and kS4S8Block128.
inline constexpr int64_t kActivationGroup = 128;

/// Quantizes and dequantizes one row of K inputs: scale * quantized as f32 (one rounding), in the
/// order of x.
void round_activations(const QuantParams& quant, std::span<const float> x, float* rounded);

/// Quantizes one row to s8 and returns its scale; for kS8Token and kS8Static. A row that holds a
/// NaN or an infinity becomes zeros with a scale of NaN.
float quantize_s8(const QuantParams& quant, std::span<const float> x, int8_t* quantized);

/// Prepares x for a GEMM in f32: the rows of x as round_activations() gives them, bit for bit, then
/// permuted into packed order (QuantParams::input_perm), with the context's row magnitudes. x is
/// [M, PackedWeight::num_inputs()], `prepared` [M, K], f32 both; may not overlap.
void prepare_activations(ExecContext& context, const QuantParams& quant, ConstMatrix x,
                         Matrix prepared);

}  // namespace halley
