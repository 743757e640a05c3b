// Elementwise MLP activations, and the soft cap and the factor on logits, on the GPU.
#pragma once

#include "halley/core/matrix.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

/// y[m,i] = f(gate_up[m,i]) * gate_up[m,F+i], in f32, rounded once.
/// Shapes    gate_up [M, 2F], y [M, F]; f32, f16 or bf16, both of one type
void gated_activation(const CudaContext& context, Activation activation, ConstMatrix gate_up,
                      Matrix y);

/// x = f(x), in place. Shapes x [M, F] f32, f16 or bf16.
void apply_activation(const CudaContext& context, Activation activation, Matrix x);

/// x = factor * x, in place. Shapes x [M, V] f32.
void scale_rows(const CudaContext& context, float factor, Matrix x);

/// x = cap * tanh(x / cap), in place. Shapes x [M, V] f32.
void apply_soft_cap(const CudaContext& context, float cap, Matrix x);

}  // namespace halley::cuda
