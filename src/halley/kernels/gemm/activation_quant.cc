#include "halley/kernels/gemm/activation_quant.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "halley/base/check.h"
#include "halley/core/float8.h"

namespace halley {
namespace {

constexpr float kS8Max = 127.0f;
// Below it the reciprocal of a step could overflow; such rows have codes of zero.
constexpr float kSmallestMagnitude = 0x1p-100f;

/// The largest magnitude; NaN where a value is NaN or infinite.
float largest_magnitude(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) {
    if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

/// x * inverse is the code before rounding; scale * code is the value that it stands for.
struct Step {
  float scale = 0;
  float inverse = 0;
};

/// The step that takes the largest magnitude to code_max.
Step step_of(std::span<const float> x, float code_max) {
  const float largest = largest_magnitude(x);
  if (largest < kSmallestMagnitude) return {};
  return {largest / code_max, code_max / largest};
}

Step static_step(const QuantParams& quant, std::span<const float> x) {
  if (std::isnan(largest_magnitude(x))) return {std::numeric_limits<float>::quiet_NaN(), 0};
  return {quant.activation_scale, 1.0f / quant.activation_scale};
}

void round_e4m3(std::span<const float> x, const Step& step, float* rounded) {
  for (size_t k = 0; k < x.size(); ++k) {
    rounded[k] = step.scale * e4m3_to_f32(f32_to_e4m3(x[k] * step.inverse));
  }
}

void round_s8(const QuantParams& quant, std::span<const float> x, float* rounded) {
  std::vector<int8_t> codes(x.size());
  const float scale = quantize_s8(quant, x, codes.data());
  for (size_t k = 0; k < x.size(); ++k) rounded[k] = scale * static_cast<float>(codes[k]);
}

}  // namespace

float quantize_s8(const QuantParams& quant, std::span<const float> x, int8_t* codes) {
  const bool is_static = quant.activation == ActivationQuant::kS8Static;
  HALLEY_CHECK(is_static || quant.activation == ActivationQuant::kS8Token, quant.activation);
  const Step step = is_static ? static_step(quant, x) : step_of(x, kS8Max);
  std::fill_n(codes, x.size(), int8_t{0});
  if (std::isnan(step.scale)) return step.scale;
  for (size_t k = 0; k < x.size(); ++k) {
    const float code = std::nearbyint(x[k] * step.inverse);
    codes[k] = static_cast<int8_t>(std::clamp(code, -128.0f, kS8Max));
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
      return round_e4m3(x, static_step(quant, x), rounded);
    case ActivationQuant::kE4m3Token:
      return round_e4m3(x, step_of(x, kE4m3Max), rounded);
    case ActivationQuant::kE4m3Group128:
      for (size_t begin = 0; begin < x.size(); begin += kActivationGroup) {
        const auto group = x.subspan(begin, std::min<size_t>(kActivationGroup, x.size() - begin));
        round_e4m3(group, step_of(group, kE4m3Max), rounded + begin);
      }
      return;
  }
  HALLEY_CHECK(false, static_cast<int>(quant.activation));
}

}  // namespace halley
