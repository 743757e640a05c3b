#include "halley/kernels/rope/rope.h"

#include <cmath>

#include "halley/base/check.h"
#include "halley/kernels/base/row_tasks.h"
#include "halley/kernels/rope/rope_rows.h"

namespace halley {
namespace {

/// The pairs of RopeRow as neighbouring columns. It is memory-bound, like the other order.
void apply_interleaved_row(const RopeRow& row, float* x) {
  for (int64_t head = 0; head < row.num_heads; ++head) {
    float* pair = x + head * row.head_dim;
    for (int64_t i = 0; i < row.rotary_dim / 2; ++i, pair += 2) {
      const float a = pair[0], b = pair[1];
      pair[0] = a * row.cos[i] - b * row.sin[i];
      pair[1] = b * row.cos[i] + a * row.sin[i];
    }
  }
}

// A sine and a cosine cost about as much as this many loads and stores.
constexpr int64_t kCostPerAngle = 32;

}  // namespace

void compute_rope_angles(ExecContext& context, std::span<const int32_t> positions,
                         std::span<const float> inv_freq, float attention_factor,
                         RopeAngles& angles) {
  const auto num_rows = static_cast<int64_t>(positions.size());
  const auto half = static_cast<int64_t>(inv_freq.size());
  angles.rotary_dim = 2 * half;
  angles.cos.resize(positions.size() * inv_freq.size());
  angles.sin.resize(positions.size() * inv_freq.size());
  for_row_ranges(context, num_rows, kCostPerAngle * half, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      const auto position = static_cast<float>(positions[static_cast<size_t>(m)]);
      for (int64_t i = 0; i < half; ++i) {
        const float angle = position * inv_freq[static_cast<size_t>(i)];
        const auto at = static_cast<size_t>(m * half + i);
        angles.cos[at] = std::cos(angle) * attention_factor;
        angles.sin[at] = std::sin(angle) * attention_factor;
      }
    }
  });
}

void apply_rope(ExecContext& context, const RopeAngles& angles, int64_t num_heads, int64_t head_dim,
                Matrix x) {
  const int64_t half = angles.rotary_dim / 2;
  HALLEY_CHECK(angles.rotary_dim <= head_dim, angles.rotary_dim, head_dim);
  HALLEY_CHECK(x.num_cols == num_heads * head_dim, x.num_cols, num_heads, head_dim);
  HALLEY_CHECK(static_cast<int64_t>(angles.cos.size()) == x.num_rows * half, angles.cos.size(),
               x.num_rows, half);
  for_row_ranges(context, x.num_rows, x.num_cols, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      const RopeRow row{angles.cos.data() + m * half, angles.sin.data() + m * half,
                        angles.rotary_dim, num_heads, head_dim};
      if (angles.is_interleaved) {
        apply_interleaved_row(row, x.row<float>(m));
      } else {
        apply_rope_row(row, x.row<float>(m));
      }
    }
  });
}

}  // namespace halley
