// The SIMD part of rope.h: one token on the caller's thread.
#pragma once

#include <cstdint>

namespace halley {

/// One token's heads: cos and sin have rotary_dim / 2 elements, x num_heads * head_dim.
struct RopeRow {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t rotary_dim = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
};

void apply_rope_row(const RopeRow& row, float* x);

}  // namespace halley
