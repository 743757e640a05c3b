#include "halley/cuda/weights/weight_form.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/mixed_gemm/mixed_pack.h"
#include "halley/cuda/weights/gemv_linear.h"

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
  if (problem.w_layout == PackedLayout::kE2m1Quad) return "no product takes 4-bit floats";
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

int quad_bits(PackedLayout layout) {
  switch (layout) {
    case PackedLayout::kU8Quad:
      return 8;
    case PackedLayout::kU3Quad:
      return 3;
    case PackedLayout::kU2Quad:
      return 2;
    default:
      return 0;
  }
}

std::string describe_groups(const GemmProblem& problem) {
  if (problem.group_size >= problem.K) return "per-channel scales";
  return str("groups of ", problem.group_size, " inputs");
}

/// What is done with inputs first.
std::string describe_inputs(const GemmProblem& problem, bool are_codes) {
  std::string text;
  if (problem.has_input_perm) text += ", inputs put in their order before";
  if (!are_codes && problem.activation != ActivationQuant::kNone) {
    text += str(", activations rounded (", problem.activation, ") and multiplied as numbers");
  }
  return text;
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

WeightForm rows_form(bool are_codes, const GemmProblem& problem, DType activation_dtype,
                     const std::string& reasons) {
  WeightForm form = weight_form(problem, activation_dtype);
  if (are_codes) return form;
  // Codes that the data rejected.
  form.dtype = activation_dtype;
  if (!reasons.empty()) form.why_numbers = reasons;
  return form;
}

std::string describe_form(const char* stored, const WeightForm& form) {
  if (form.is_codes()) return str(stored, ", kept as ", form.dtype, " codes");
  if (form.why_numbers.empty()) return str(stored, ", kept in ", form.dtype);
  return str(stored, ", decoded to ", form.dtype, ": ", form.why_numbers);
}

std::string describe_mixed(MixedKind kind, const GemmProblem& problem) {
  return str(problem.w_layout, ", kept in ", is_u8(kind) ? 8 : 4, " bits (", kind,
             "): ", describe_groups(problem), describe_inputs(problem, is_s8(kind)));
}

int64_t row_stride_of(DType dtype, int64_t K) {
  return round_up<int64_t>(std::max<int64_t>(K, 1), 128 / bits_of(dtype));
}

size_t row_bytes_of(DType dtype, int64_t N, int64_t K) {
  const bool is_codes = dtype == DType::kI8 || dtype == DType::kF8E4M3;
  const int64_t rows = is_codes ? round_up(N, kGemmPadding) : N;
  return static_cast<size_t>(rows * row_stride_of(dtype, K) * bits_of(dtype) / 8);
}

std::string join_reasons(const std::string& one, const std::string& another) {
  if (another.empty() || str("; ", one, "; ").find(str("; ", another, "; ")) != std::string::npos) {
    return one;
  }
  return one.empty() ? another : str(one, "; ", another);
}

GemvShape gemv_shape(const GemmProblem& problem) {
  return {.inputs = GemvInputs::kNumbers,
          .bits = quad_bits(problem.w_layout),
          .N = problem.N,
          .K = problem.K,
          .group_size = problem.group_size};
}

std::string describe_gemv(const GemmProblem& problem, DType activation_dtype) {
  const int bits = quad_bits(problem.w_layout);
  return str(problem.w_layout, ", kept in ", bits, " bits: ", describe_groups(problem),
             describe_inputs(problem, /*are_codes=*/false), "; of more than ",
             gemv_linear_rows_max(bits), " rows decoded to ", activation_dtype);
}

const char* gemv_kernel_name(int bits) {
  switch (bits) {
    case 8:
      return "gemm_w8a16_gemv";
    case 3:
      return "gemm_w3a16_gemv";
    default:
      return "gemm_w2a16_gemv";
  }
}

GemvScales gemv_scales(const PackedWeight& weight) {
  GemvScales result;
  const int64_t groups = weight.num_groups();
  result.scales.reserve(static_cast<size_t>(weight.N * groups));
  result.zeros.reserve(static_cast<size_t>(weight.N * groups));
  bool is_fine = true;
  for (int64_t n = 0; n < weight.N; ++n) {
    for (int64_t group = 0; group < groups; ++group) {
      const float* params = weight.group(n / kPanelRows, group) + n % kPanelRows;
      const float scale = params[0];
      float zero = params[kPanelRows];
      if (weight.quant.zero_kind == ZeroKind::kOffset) {
        const float in_codes = scale == 0 ? 0 : zero / scale;
        is_fine = is_fine && in_codes * scale == zero;
        zero = in_codes;
      }
      is_fine = is_fine && std::isfinite(scale);
      result.scales.push_back(scale);
      result.zeros.push_back(zero);
    }
  }
  if (!is_fine || !has_gemv_zeros(result.zeros)) result.zeros.clear();
  return result;
}

std::string describe_nested(const GemmProblem& problem) {
  return str(problem.w_layout, ", kept in two planes: joined to f16, or the upper one alone");
}

std::string describe_w4ax(const GemmProblem& problem) {
  return str(problem.w_layout, ", kept in 4 bits: blocks of ", problem.group_size,
             " inputs, for activations of ", problem.activation);
}

CudaGemmProblem nested_low_problem(int64_t N, int64_t K, bool has_bias) {
  return {.dtype = DType::kF8E4M3,
          .N = N,
          .K = K,
          .x_scale = ScaleSpan::kRow,
          .w_scale = ScaleSpan::kRow,
          .has_bias = has_bias};
}

bool fits_w4ax(const PackedWeight& weight) {
  constexpr float kMiddle = 8;
  constexpr uint32_t kLostBits = 3;  // of the 24 of f32, the first included: 22 stay
  for (int64_t n = 0; n < weight.N; ++n) {
    for (int64_t group = 0; group < weight.num_groups(); ++group) {
      const float* params = weight.group(n / kPanelRows, group) + n % kPanelRows;
      if (params[kPanelRows] != kMiddle || !std::isfinite(params[0])) return false;
      if ((std::bit_cast<uint32_t>(params[0]) & kLostBits) != 0) return false;
    }
  }
  return true;
}

const char* mixed_kernel_name(MixedKind kind) {
  switch (kind) {
    case MixedKind::kU4S8:
      return "gemm_w4a8_mixed";
    case MixedKind::kU4GroupS8:
      return "gemm_w4a8_group_mixed";
    case MixedKind::kU4F16:
    case MixedKind::kU4Bf16:
      return "gemm_w4a16_mixed";
    case MixedKind::kU8F16:
    case MixedKind::kU8Bf16:
      return "gemm_w8a16_mixed";
  }
  return "?";
}

const char* mma_kernel_name(MixedKind kind) {
  switch (kind) {
    case MixedKind::kU4S8:
      return "gemm_w4a8_mma";
    case MixedKind::kU4GroupS8:
      return "gemm_w4a8_group_mma";
    case MixedKind::kU4F16:
    case MixedKind::kU4Bf16:
      return "gemm_w4a16_mma";
    case MixedKind::kU8F16:
    case MixedKind::kU8Bf16:
      return "";
  }
  return "?";
}

int code_shift(PackedLayout layout) { return layout == PackedLayout::kU8Quad ? 128 : 0; }

CodeScales code_scales(const PackedWeight& weight, int shift) {
  HALLEY_CHECK(weight.num_groups() == 1, weight.num_groups());
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

void check_whole_order(const std::string& name, const PackedWeight& weight) {
  if (weight.num_inputs() == weight.K) return;
  throw UnsupportedError(str("layer ", quote(name), ": expected a weight that stays in its bits, ",
                             "since its inputs are in an order over all ranks, got ", weight.layout,
                             ". Use one GPU, or --device cpu."));
}

}  // namespace halley::cuda
