#include "halley/quant/stored/float8_tensors.h"

#include <algorithm>
#include <cmath>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/float8.h"
#include "halley/quant/base/written_tensors.h"

namespace halley {
namespace {

constexpr float kScaleMin = 0x1p-100f;

void check_finite(const std::string& name, std::span<const float> weight, int64_t K) {
  const auto bad =
      std::find_if(weight.begin(), weight.end(), [](float w) { return !std::isfinite(w); });
  if (bad == weight.end()) return;
  const int64_t index = bad - weight.begin();
  throw CheckpointError(str("layer ", quote(name), ": expected finite weights, got ", *bad, " at [",
                            index / K, ", ", index % K, "]. The file is damaged: fetch it again."));
}

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float number : values) largest = std::max(largest, std::fabs(number));
  return largest;
}

}  // namespace

float e4m3_scale(float max_abs) {
  HALLEY_CHECK(std::isfinite(max_abs) && max_abs >= 0, max_abs);
  return max_abs == 0 ? 1.0f : std::max(max_abs / kE4m3Max, kScaleMin);
}

std::vector<CheckpointTensor> encode_float8(const std::string& name, std::span<const float> weight,
                                            int64_t K, Float8Scales scales,
                                            std::optional<float> input_scale) {
  HALLEY_CHECK(K > 0 && weight.size() % static_cast<size_t>(K) == 0, weight.size(), K);
  check_finite(name, weight, K);
  const int64_t N = static_cast<int64_t>(weight.size()) / K;
  std::vector<float> row_scales;
  std::vector<uint8_t> codes(weight.size());
  const bool is_per_tensor = scales == Float8Scales::kTensor;
  const size_t block = is_per_tensor ? weight.size() : static_cast<size_t>(K);
  for (size_t begin = 0; begin < weight.size(); begin += block) {
    const float scale = e4m3_scale(largest_of(weight.subspan(begin, block)));
    row_scales.push_back(scale);
    for (size_t i = begin; i < begin + block; ++i) codes[i] = f32_to_e4m3(weight[i] / scale);
  }
  std::vector<CheckpointTensor> tensors = {
      written_tensor(name + ".weight", DType::kF8E4M3, {N, K}, codes),
      written_tensor(name + ".weight_scale", DType::kF32, is_per_tensor ? Shape{1} : Shape{N, 1},
                     row_scales)};
  if (input_scale) {
    HALLEY_CHECK(std::isfinite(*input_scale) && *input_scale >= kScaleMin, name, *input_scale);
    tensors.push_back(
        written_tensor(name + ".input_scale", DType::kF32, {1}, std::vector<float>{*input_scale}));
  }
  return tensors;
}

}  // namespace halley
