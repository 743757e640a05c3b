// Slow, f64, obvious: the definition of the rotary embedding for tests.
#pragma once

#include <cstdint>
#include <span>

#include "halley/core/matrix.h"

namespace halley {

/// Rotates x by the angles positions[m] * inv_freq[i], rounded to f32; nothing else is.
/// Shapes    x [M, num_heads * head_dim] f32; inv_freq [rotary_dim / 2]
void apply_rope_reference(std::span<const int32_t> positions, std::span<const float> inv_freq,
                          float attention_factor, int64_t head_dim, Matrix x,
                          bool is_interleaved = false);

}  // namespace halley
