#include "halley/kernels/gemm/activation_quant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "halley/base/check.h"
#include "halley/core/float8.h"
#include "halley/kernels/base/row_tasks.h"
#include "halley/kernels/gemm/activation_step.h"

namespace halley {
namespace {

/// The largest magnitude; NaN where a value is NaN or infinite.
float largest_magnitude(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) {
    if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

ActivationStep step_of(const QuantParams& quant, std::span<const float> x) {
  return activation_step(quant, largest_magnitude(x));
}

void round_e4m3(std::span<const float> x, const ActivationStep& step, float* rounded) {
  for (size_t k = 0; k < x.size(); ++k) {
    rounded[k] = step.scale * e4m3_to_f32(f32_to_e4m3(x[k] * step.inverse));
  }
}

void round_s8(const QuantParams& quant, std::span<const float> x, float* rounded) {
  std::vector<int8_t> quantized(x.size());
  const float scale = quantize_s8(quant, x, quantized.data());
  for (size_t k = 0; k < x.size(); ++k) rounded[k] = scale * static_cast<float>(quantized[k]);
}

/// packed[k] = natural[input_perm[k]].
void gather(std::span<const int32_t> input_perm, const float* natural, float* packed) {
  for (size_t k = 0; k < input_perm.size(); ++k) {
    packed[k] = natural[static_cast<size_t>(input_perm[k])];
  }
}

/// kS4S8Block128, in packed order.
void round_blocks(const QuantParams& quant, std::span<const float> x, float* rounded) {
  for (size_t begin = 0; begin < x.size(); begin += kActivationGroup) {
    const auto block = x.subspan(begin, std::min<size_t>(kActivationGroup, x.size() - begin));
    const auto start = static_cast<int64_t>(begin);
    const ActivationStep step = block_step(quant, start, largest_magnitude(block));
    const QuantLimits limits = block_limits(quant, start);
    for (size_t k = 0; k < block.size(); ++k) {
      const float quantized = std::nearbyint(block[k] * step.inverse);
      // An integer has no negative zero.
      rounded[begin + k] =
          step.scale * (std::clamp(quantized, limits.smallest, limits.largest) + 0.0f);
    }
  }
}

/// The same with the permutation applied before and undone after; numbers that it does not pick
/// stay.
void round_ordered_blocks(const QuantParams& quant, std::span<const float> x, float* rounded) {
  if (quant.input_perm.empty()) return round_blocks(quant, x, rounded);
  const size_t K = quant.input_perm.size();
  HALLEY_CHECK(K <= x.size(), K, x.size());
  std::vector<float> packed(K), packed_rounded(K);
  gather(quant.input_perm, x.data(), packed.data());
  round_blocks(quant, packed, packed_rounded.data());
  std::copy(x.begin(), x.end(), rounded);
  for (size_t k = 0; k < K; ++k) {
    rounded[static_cast<size_t>(quant.input_perm[k])] = packed_rounded[k];
  }
}

/// The largest quantized value dequantizes to `range`.
ActivationStep step_of_range(float range, float quant_max) {
  if (range < kSmallestMagnitude) return {};
  return {range / quant_max, quant_max / range};
}

}  // namespace

ActivationStep activation_step(const QuantParams& quant, float largest) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (!std::isfinite(largest)) return {kNan, kNan};
  const bool is_s8 = quant.activation == ActivationQuant::kS8Token;
  const float quant_max = is_s8 ? kS8Limits.largest : kE4m3Max;
  switch (quant.activation) {
    case ActivationQuant::kS8Token:
    case ActivationQuant::kE4m3Token:
    case ActivationQuant::kE4m3Group128:
      return step_of_range(largest, quant_max);
    case ActivationQuant::kS8Static:
    case ActivationQuant::kE4m3Static: {
      const float scale = quant.activation_scale;
      if (!std::isfinite(scale) || scale < kSmallestMagnitude) return {kNan, kNan};
      return {scale, 1.0f / scale};
    }
    case ActivationQuant::kS4S8Block128:
    case ActivationQuant::kNone:
      break;
  }
  HALLEY_CHECK(false, static_cast<int>(quant.activation));
  return {};
}

ActivationStep block_step(const QuantParams& quant, int64_t begin, float largest) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (!std::isfinite(largest)) return {kNan, kNan};
  if (is_s8_block(quant, begin)) return step_of_range(largest, kS8Limits.largest);
  // Written so that NaN fails.
  if (!(quant.s4_clip > 0 && quant.s4_clip <= 1)) return {kNan, kNan};
  return step_of_range(quant.s4_clip * largest, kS4Limits.largest);
}

float quantize_s8(const QuantParams& quant, std::span<const float> x, int8_t* quantized) {
  HALLEY_CHECK(quant.activation == ActivationQuant::kS8Static ||
                   quant.activation == ActivationQuant::kS8Token,
               quant.activation);
  const ActivationStep step = step_of(quant, x);
  std::fill_n(quantized, x.size(), int8_t{0});
  if (std::isnan(step.scale)) return step.scale;
  for (size_t k = 0; k < x.size(); ++k) {
    const float value = std::nearbyint(x[k] * step.inverse);
    quantized[k] = static_cast<int8_t>(std::clamp(value, kS8Limits.smallest, kS8Limits.largest));
  }
  return step.scale;
}

void round_activations(const QuantParams& quant, std::span<const float> x, float* rounded) {
  switch (quant.activation) {
    case ActivationQuant::kNone:
      std::copy(x.begin(), x.end(), rounded);
      return;
    case ActivationQuant::kS8Token:
    case ActivationQuant::kS8Static:
      return round_s8(quant, x, rounded);
    case ActivationQuant::kE4m3Static:
    case ActivationQuant::kE4m3Token:
      return round_e4m3(x, step_of(quant, x), rounded);
    case ActivationQuant::kS4S8Block128:
      return round_ordered_blocks(quant, x, rounded);
    case ActivationQuant::kE4m3Group128:
      for (size_t begin = 0; begin < x.size(); begin += kActivationGroup) {
        const auto group = x.subspan(begin, std::min<size_t>(kActivationGroup, x.size() - begin));
        round_e4m3(group, step_of(quant, group), rounded + begin);
      }
      return;
  }
  HALLEY_CHECK(false, static_cast<int>(quant.activation));
}

void prepare_activations(ExecContext& context, const QuantParams& quant, ConstMatrix x,
                         Matrix prepared) {
  const int64_t K = prepared.num_cols;
  HALLEY_CHECK(x.num_rows == prepared.num_rows, x.num_rows, prepared.num_rows);
  if (quant.input_perm.empty()) {
    HALLEY_CHECK(x.num_cols == K, x.num_cols, K);
  } else {
    HALLEY_CHECK(static_cast<int64_t>(quant.input_perm.size()) == K && x.num_cols >= K,
                 quant.input_perm.size(), x.num_cols, K);
  }
  const bool is_rounded = quant.activation != ActivationQuant::kNone;
  const bool is_gathered = !quant.input_perm.empty();
  const bool is_gathered_first = quant.activation == ActivationQuant::kS4S8Block128;
  for_row_ranges(context, x.num_rows, 4 * x.num_cols, [&](int64_t begin, int64_t end) {
    const auto num_inputs = static_cast<size_t>(x.num_cols);
    std::vector<float> between(is_rounded && is_gathered ? num_inputs : 0);
    for (int64_t m = begin; m < end; ++m) {
      const float* from = x.row<float>(m);
      float* to = prepared.row<float>(m);
      const float magnitude = context.row_magnitude(m);
      if (!is_rounded && !is_gathered) {
        std::copy_n(from, num_inputs, to);
      } else if (!is_rounded) {
        gather(quant.input_perm, from, to);
      } else if (!is_gathered) {
        round_activations_simd(quant, from, x.num_cols, to, magnitude);
      } else if (is_gathered_first) {
        gather(quant.input_perm, from, between.data());
        round_activations_simd(quant, between.data(), K, to, magnitude);
      } else {
        round_activations_simd(quant, from, x.num_cols, between.data(), magnitude);
        gather(quant.input_perm, between.data(), to);
      }
    }
  });
}

}  // namespace halley
