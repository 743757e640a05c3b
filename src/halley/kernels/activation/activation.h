// The elementwise functions of MLPs, and the soft cap and the factor on logits.
#pragma once

#include <cstdint>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"

namespace halley {

enum class Activation : uint8_t { kSilu, kGeluTanh, kGeluErf, kRelu };

/// y[m,i] = f(gate_up[m,i]) * gate_up[m,F+i]
/// Shapes    gate_up [M, 2F], y [M, F], f32
void gated_activation(ExecContext& context, Activation activation, ConstMatrix gate_up, Matrix y);

/// x = f(x), in place. Shapes x [M, F] f32.
void apply_activation(ExecContext& context, Activation activation, Matrix x);

/// x = factor * x, in place. Shapes x [M, V] f32.
void scale_rows(ExecContext& context, float factor, Matrix x);

/// x = cap * tanh(x / cap), in place.
void apply_soft_cap(ExecContext& context, float cap, Matrix x);

}  // namespace halley
