#include "halley/kernels/rope/testing/rope_reference.h"

#include <cmath>

namespace halley {

void apply_rope_reference(std::span<const int32_t> positions, std::span<const float> inv_freq,
                          float attention_factor, int64_t head_dim, Matrix x, bool is_interleaved) {
  const size_t half = inv_freq.size();
  for (int64_t m = 0; m < x.num_rows; ++m) {
    for (int64_t begin = 0; begin < x.num_cols; begin += head_dim) {
      float* head = x.row<float>(m) + begin;
      for (size_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions[static_cast<size_t>(m)]) * inv_freq[i];
        const auto factor = static_cast<double>(attention_factor);
        const double cos = std::cos(static_cast<double>(angle)) * factor;
        const double sin = std::sin(static_cast<double>(angle)) * factor;
        float& first = head[is_interleaved ? 2 * i : i];
        float& second = head[is_interleaved ? 2 * i + 1 : i + half];
        const auto a = static_cast<double>(first), b = static_cast<double>(second);
        first = static_cast<float>(a * cos - b * sin);
        second = static_cast<float>(b * cos + a * sin);
      }
    }
  }
}

}  // namespace halley
