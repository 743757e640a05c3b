#include "halley/cuda/weights/weight_form.h"

#include <algorithm>

#include "halley/base/check.h"
#include "halley/base/str.h"

namespace halley::cuda {
namespace {

/// s32 holds every sum of this many products of s8.
constexpr int64_t kS8InputsMax = 131071;

bool is_s8(ActivationQuant activation) {
  return activation == ActivationQuant::kS8Token || activation == ActivationQuant::kS8Static;
}

bool is_e4m3(ActivationQuant activation) {
  return activation == ActivationQuant::kE4m3Token || activation == ActivationQuant::kE4m3Static;
}

/// Empty: the weight's codes are multiplied as they are.
std::string why_numbers(const GemmProblem& problem) {
  if (problem.w_layout == PackedLayout::kNestedF16Quad) return "its two planes make f16 numbers";
  if (problem.activation == ActivationQuant::kNone) return "its activations are not rounded";
  const bool is_float = problem.w_layout == PackedLayout::kF8E4M3Quad;
  if (!is_s8(problem.activation) && !is_e4m3(problem.activation)) {
    return str("blocks of its activations have scales of their own (", problem.activation, ")");
  }
  if (is_float != is_e4m3(problem.activation)) {
    return str("no product takes ", problem.w_layout, " codes and activations of ",
               problem.activation);
  }
  if (problem.group_size < problem.K) {
    return str("groups of ", problem.group_size, " inputs have scales of their own");
  }
  if (!is_float && problem.K > kS8InputsMax) {
    return str("s32 sums hold at most ", kS8InputsMax, " inputs, it has ", problem.K);
  }
  return {};
}

}  // namespace

WeightForm weight_form(const GemmProblem& problem, DType activation_dtype) {
  const bool is_dense =
      !is_quantized(problem.w_layout) && problem.w_layout != PackedLayout::kNestedF16Quad;
  if (is_dense || problem.N == 0 || problem.K == 0) return {.dtype = activation_dtype};
  std::string reason = why_numbers(problem);
  if (!reason.empty()) return {.dtype = activation_dtype, .why_numbers = std::move(reason)};
  const bool is_float = problem.w_layout == PackedLayout::kF8E4M3Quad;
  return {.dtype = is_float ? DType::kF8E4M3 : DType::kI8};
}

CodeScales code_scales(const PackedWeight& weight) {
  HALLEY_CHECK(weight.num_groups() == 1, weight.num_groups());
  const double shift = weight.layout == PackedLayout::kU8Quad ? 128 : 0;
  CodeScales result;
  for (int64_t n = 0; n < weight.N; ++n) {
    const float* group = weight.group(n / kPanelRows, 0);
    const double scale = group[n % kPanelRows];
    const double zero = group[kPanelRows + n % kPanelRows];
    const bool is_point = weight.quant.zero_kind == ZeroKind::kPoint;
    const double offset = is_point ? scale * (zero - shift) : zero - scale * shift;
    result.scales.push_back(static_cast<float>(scale));
    result.offsets.push_back(static_cast<float>(offset));
  }
  const auto is_zero = [](float offset) { return offset == 0.0f; };
  if (std::all_of(result.offsets.begin(), result.offsets.end(), is_zero)) result.offsets.clear();
  const auto is_first = [&](float scale) { return scale == result.scales.front(); };
  result.has_one_scale = std::all_of(result.scales.begin(), result.scales.end(), is_first);
  return result;
}

}  // namespace halley::cuda
