// For tests: weights in quad layouts from a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "halley/core/float16.h"
#include "halley/core/packed_weight.h"
#include "halley/kernels/gemm/pack_quads.h"
#include "halley/kernels/gemm/testing/gemm_cases.h"

namespace halley {

/// The quantized values of one panel as pack_quads() wants them; a test writes them one by one.
class PanelValues {
 public:
  explicit PanelValues(int64_t K)
      : num_units_((K + kQuadUnitInputs - 1) / kQuadUnitInputs),
        values_(static_cast<size_t>(num_units_ * kQuadUnitInputs * kPanelRows)) {}

  uint8_t& at(int64_t n, int64_t k) {
    return values_[static_cast<size_t>(k / 4 * kQuadValues + n * 4 + k % 4)];
  }
  void pack(PackedWeight* weight, int64_t panel) const {
    const size_t bytes = packed_bytes(weight->layout, kPanelRows, weight->K);
    pack_quads(weight->layout, values_.data(), num_units_,
               weight->data.data() + static_cast<size_t>(panel) * bytes);
  }

 private:
  int64_t num_units_;
  std::vector<uint8_t> values_;
};

/// Quantized values, scales and zeros are zero.
inline PackedWeight empty_weight(PackedLayout layout, int64_t N, int64_t K, int64_t group_size) {
  PackedWeight weight;
  weight.layout = layout;
  weight.N = N;
  weight.K = K;
  weight.quant.group_size = group_size;
  allocate_quantized(&weight);
  std::fill_n(weight.data.data(), weight.data.num_bytes(), std::byte{0});
  std::fill_n(weight.quant.groups.data(), weight.quant.groups.num_bytes(), std::byte{0});
  return weight;
}

/// Scales around 1, some negative, and zeros.
inline void fill_groups(const QuadCase& quad, std::mt19937& random, PackedWeight* weight) {
  // Some weights have scales of 24 bits and fractional zeros: scale * zero is then rounded.
  const bool is_whole = random() % 3 != 0;
  std::uniform_real_distribution<float> scales(0.5f, 2.0f), fractions(0.0f, 1.0f);
  const auto code_range = static_cast<uint32_t>(1 << code_bits(quad.layout));
  const bool is_float =
      quad.layout == PackedLayout::kF8E4M3Quad || quad.layout == PackedLayout::kE2m1Quad;
  auto groups = weight->quant.groups.as<float>();
  const auto num_groups = static_cast<size_t>(weight->K == 0 ? 0 : weight->num_groups());
  for (int64_t n = 0; n < weight->N; ++n) {
    for (size_t g = 0; g < num_groups; ++g) {
      float* params = groups.data() +
                      (static_cast<size_t>(n / kPanelRows) * num_groups + g) * 2 * kPanelRows +
                      n % kPanelRows;
      const float scale = (random() % 8 == 0 ? -1.0f : 1.0f) * scales(random);
      const float zero = is_float ? 0.0f : static_cast<float>(random() % code_range);
      params[0] = is_whole ? f16_to_f32(f32_to_f16(scale)) : scale;
      params[kPanelRows] = is_whole ? zero : zero + fractions(random);
    }
  }
}

/// The weight of a case, from the seed.
inline PackedWeight make_weight(const QuadCase& quad, uint32_t seed) {
  std::mt19937 random(seed);
  const auto [M, N, K, has_bias] = quad.shape;
  PackedWeight weight = empty_weight(quad.layout, N, K, quad.group_size);
  weight.quant.zero_kind = quad.zero_kind;
  weight.quant.activation = quad.activation;
  weight.quant.activation_scale = 0.0175f;
  weight.quant.num_s8_inputs = std::min<int64_t>(K, 128 * (seed % 3));
  weight.quant.s4_clip = 0.85f;
  if (quad.has_input_perm) {
    weight.quant.input_perm.resize(static_cast<size_t>(K));
    std::iota(weight.quant.input_perm.begin(), weight.quant.input_perm.end(), 0);
    std::shuffle(weight.quant.input_perm.begin(), weight.quant.input_perm.end(), random);
  }
  fill_groups(quad, random, &weight);
  const auto mask = static_cast<uint8_t>((1 << code_bits(quad.layout)) - 1);
  for (int64_t panel = 0; panel * kPanelRows < N; ++panel) {
    PanelValues values(K);
    for (int64_t n = panel * kPanelRows; n < std::min(N, (panel + 1) * kPanelRows); ++n) {
      for (int64_t k = 0; k < K; ++k) {
        auto code = static_cast<uint8_t>(random() & mask);
        if (quad.layout == PackedLayout::kF8E4M3Quad && (code & 0x7F) == 0x7F) code ^= 1;
        values.at(n % kPanelRows, k) = code;
      }
    }
    values.pack(&weight, panel);
  }
  return weight;
}

}  // namespace halley
