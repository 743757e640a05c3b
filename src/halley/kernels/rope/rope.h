// Rotary position embedding: in the "rotate half" order of most Hugging Face checkpoints, or of
// neighbouring columns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"

namespace halley {

/// cos and sin of every token's angles, made once a step and used by all layers.
struct RopeAngles {
  int64_t rotary_dim = 0;       // 2 * angles a token
  std::vector<float> cos, sin;  // [M, rotary_dim / 2], scaled by the attention factor
  bool is_interleaved = false;  // apply_rope() turns neighbouring columns
};

/// angles[m,i] = positions[m] * inv_freq[i] in f32, as transformers computes them.
void compute_rope_angles(ExecContext& context, std::span<const int32_t> positions,
                         std::span<const float> inv_freq, float attention_factor,
                         RopeAngles& angles);

/// Rotates the first rotary_dim columns of each head, in place: with h = rotary_dim / 2,
///   x'[i] = x[i] cos[i] - x[i+h] sin[i];  x'[i+h] = x[i+h] cos[i] + x[i] sin[i]
/// or, interleaved, the same of columns 2i and 2i+1.
/// Shapes    x [M, num_heads * head_dim] f32, rotary_dim <= head_dim
void apply_rope(ExecContext& context, const RopeAngles& angles, int64_t num_heads, int64_t head_dim,
                Matrix x);

}  // namespace halley
