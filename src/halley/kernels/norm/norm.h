// RMSNorm and LayerNorm over rows.
#pragma once

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"

namespace halley {

/// y[m,i] = x[m,i] * rsqrt(mean(x[m]^2) + epsilon) * (weight[i] + weight_offset)
///
/// Shapes    x, y [M, K] f32 (y may be x); weight [K]
/// Requires  M >= 0, K >= 1. weight_offset is 0 (Llama, Qwen) or 1 (Gemma).
/// Numerics  f32; the order of the sum depends on the vector width, not on M
void rms_norm(ExecContext& context, ConstMatrix x, const float* weight, float weight_offset,
              float epsilon, Matrix y);

/// The same over each group of head_dim consecutive columns (QK norm), in place.
/// Shapes    x [M, num_heads * head_dim]; weight [head_dim]
void rms_norm_heads(ExecContext& context, Matrix x, int64_t head_dim, const float* weight,
                    float weight_offset, float epsilon);

/// y[m,i] = (x[m,i] - mean(x[m])) * rsqrt(var(x[m]) + epsilon) * weight[i] + bias[i]
/// Shapes    x, y [M, K] f32 (y may be x); weight, bias [K], bias may be null
void layer_norm(ExecContext& context, ConstMatrix x, const float* weight, const float* bias,
                float epsilon, Matrix y);

/// y += x, elementwise. Shapes x, y [M, K] f32.
void add_rows(ExecContext& context, ConstMatrix x, Matrix y);

}  // namespace halley
