#include "halley/kernels/gemm/gemm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/gemm/dot_kernel.h"
#include "halley/kernels/gemm/pack_dense.h"
#include "halley/kernels/gemm/panel_kernel.h"

namespace halley {
namespace {

template <PackedLayout kLayout>
std::string layout_rejection(const GemmProblem& problem) {
  if (problem.w_layout == kLayout) return {};
  return str("reads ", name_of(kLayout), ", the weight is ", name_of(problem.w_layout));
}

std::string bf16_amx_rejection(const GemmProblem& problem) {
  std::string rejection = panel_gemm::amx_bf16_rejection();
  return rejection.empty() ? layout_rejection<PackedLayout::kBf16PairPanel>(problem) : rejection;
}

std::string bf16_avx512_rejection(const GemmProblem& problem) {
  if (!panel_gemm::has_avx512_bf16()) return "this CPU has no AVX512-BF16";
  return layout_rejection<PackedLayout::kBf16PairPanel>(problem);
}

template <const panel_gemm::PanelKernel& (*kKernel)()>
void launch_panels(ExecContext& context, const PackedWeight& weight, const float* bias,
                   ConstMatrix x, Matrix y) {
  panel_gemm::run(kKernel(), context, weight, bias, x, y);
}

// Activation quantization of kernels in f32: none, or the one that the weight asks for.
constexpr std::array kNoActivations = {ActivationQuant::kNone};
constexpr std::array kS8Activations = {ActivationQuant::kS8Token, ActivationQuant::kS8Static};
constexpr std::array kBlockActivations = {ActivationQuant::kS4S8Block128};
constexpr std::array kU8Activations = {ActivationQuant::kNone, ActivationQuant::kS8Token,
                                       ActivationQuant::kS8Static};
constexpr std::array kU4Activations = {ActivationQuant::kNone, ActivationQuant::kS8Token,
                                       ActivationQuant::kS8Static, ActivationQuant::kS4S8Block128};
constexpr std::array kE4m3Activations = {ActivationQuant::kNone, ActivationQuant::kE4m3Token,
                                         ActivationQuant::kE4m3Group128,
                                         ActivationQuant::kE4m3Static};

bool is_among(std::span<const ActivationQuant> kinds, ActivationQuant kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

template <PackedLayout kLayout, const auto& kActivations>
std::string quad_rejection(const GemmProblem& problem) {
  if (problem.w_layout != kLayout) return layout_rejection<kLayout>(problem);
  if (is_among(kActivations, problem.activation)) return {};
  return str("does not round x to ", name_of(problem.activation));
}

template <Precision kPrecision>
std::string nested_rejection(const GemmProblem& problem) {
  std::string rejection = layout_rejection<PackedLayout::kNestedF16Quad>(problem);
  if (!rejection.empty() || problem.precision == kPrecision) return rejection;
  return str("multiplies in ", kPrecision, " precision");
}

// Quantizes and permutes x where the weight asks for that.
template <Precision kPrecision>
void launch_quads(ExecContext& context, const PackedWeight& weight, const float* bias,
                  ConstMatrix x, Matrix y) {
  const panel_gemm::PanelKernel& kernel = panel_gemm::quad_panel_kernel(weight.layout, kPrecision);
  const QuantParams& quant = params_of(weight, kPrecision);
  if (quant.activation == ActivationQuant::kNone && quant.input_perm.empty()) {
    return panel_gemm::run(kernel, context, weight, bias, x, y);
  }
  // Grows and stays, as the memory of packed rows does.
  thread_local std::vector<float> memory;
  const auto num_elements = static_cast<size_t>(x.num_rows) * static_cast<size_t>(weight.K);
  if (memory.size() < num_elements) memory.resize(num_elements);
  const Matrix prepared = f32_matrix(memory.data(), x.num_rows, weight.K);
  prepare_activations(context, quant, x, prepared);
  panel_gemm::run(kernel, context, weight, bias, prepared, y);
}

// The dot-product kernels: x in integers.
template <PackedLayout kLayout, const auto& kActivations>
std::string dot_rejection(const GemmProblem& problem) {
  std::string rejection = layout_rejection<kLayout>(problem);
  if (!rejection.empty()) return rejection;
  if (!is_among(kActivations, problem.activation)) {
    std::string kinds;
    for (const ActivationQuant kind : kActivations) kinds += str(kinds.empty() ? "" : " or ", kind);
    return str("is for activations of ", kinds, ", the weight's are ", problem.activation);
  }
  if (dot_gemm::block_inputs(problem.group_size, problem.K) < dot_gemm::kBlockInputsMin) {
    return str("needs groups of a multiple of ", dot_gemm::kBlockInputsMin,
               " inputs, the weight's have ", problem.group_size);
  }
  return {};
}

template <const dot_gemm::DotKernel& (*kKernel)()>
void launch_dot(ExecContext& context, const PackedWeight& weight, const float* bias, ConstMatrix x,
                Matrix y) {
  dot_gemm::run(kKernel(), context, weight, bias, x, y);
}

// A chain of K additions in f32 errs by about sqrt(K) * 2^-24 of its terms' sum at worst sizes.
constexpr double kF32ErrorMax = 1e-5;

// Fixed point rounds each input by up to half a step of 2^-20 of its block's largest. Where that
// one alone makes up the sum, the others of its block of 128 add at most 128 * 2^-21 of it.
constexpr double kFixedPointErrorMax = 7e-5;
// The same with half a step of 2^-15: as much as f16 activations lose, and faster. Only on demand.
constexpr double kFixed16ErrorMax = 2e-3;

constexpr std::array<GemmKernel, 20> kCpuGemmKernels = {{
    {.name = "gemm_bf16_amx",
     .w_layout = PackedLayout::kBf16PairPanel,
     .why_not = bf16_amx_rejection,
     .launch = launch_panels<panel_gemm::bf16_amx_panel_kernel>,
     .x_dtype = DType::kBf16,
     .error_max = kF32ErrorMax,
     .needs = "AMX-BF16"},
    {.name = "gemm_bf16_avx512",
     .w_layout = PackedLayout::kBf16PairPanel,
     .why_not = bf16_avx512_rejection,
     .launch = launch_panels<panel_gemm::bf16_avx512_panel_kernel>,
     .x_dtype = DType::kBf16,
     .error_max = kF32ErrorMax,
     .needs = "AVX512-BF16"},
    {.name = "gemm_bf16_hwy",
     .w_layout = PackedLayout::kBf16PairPanel,
     .why_not = layout_rejection<PackedLayout::kBf16PairPanel>,
     .launch = launch_panels<panel_gemm::bf16_panel_kernel>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_f16_hwy",
     .w_layout = PackedLayout::kF16Panel,
     .why_not = layout_rejection<PackedLayout::kF16Panel>,
     .launch = launch_panels<panel_gemm::f16_panel_kernel>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_f32_hwy",
     .w_layout = PackedLayout::kF32Panel,
     .why_not = layout_rejection<PackedLayout::kF32Panel>,
     .launch = launch_panels<panel_gemm::f32_panel_kernel>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_w4a21_hwy",
     .w_layout = PackedLayout::kU4Quad,
     .why_not = dot_rejection<PackedLayout::kU4Quad, kNoActivations>,
     .launch = launch_dot<dot_gemm::w4a21_kernel>,
     .x_dtype = DType::kF32,
     .error_max = kFixedPointErrorMax},
    {.name = "gemm_w4a16_hwy",
     .w_layout = PackedLayout::kU4Quad,
     .why_not = dot_rejection<PackedLayout::kU4Quad, kNoActivations>,
     .launch = launch_dot<dot_gemm::w4a16_kernel>,
     .x_dtype = DType::kF32,
     .error_max = kFixed16ErrorMax},
    {.name = "gemm_w4a8_hwy",
     .w_layout = PackedLayout::kU4Quad,
     .why_not = dot_rejection<PackedLayout::kU4Quad, kS8Activations>,
     .launch = launch_dot<dot_gemm::w4a8_kernel>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_w4ax_hwy",
     .w_layout = PackedLayout::kU4Quad,
     .why_not = dot_rejection<PackedLayout::kU4Quad, kBlockActivations>,
     .launch = launch_dot<dot_gemm::w4ax_kernel>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_w8a8_hwy",
     .w_layout = PackedLayout::kU8Quad,
     .why_not = dot_rejection<PackedLayout::kU8Quad, kS8Activations>,
     .launch = launch_dot<dot_gemm::w8a8_kernel>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_w2a21_hwy",
     .w_layout = PackedLayout::kU2Quad,
     .why_not = dot_rejection<PackedLayout::kU2Quad, kNoActivations>,
     .launch = launch_dot<dot_gemm::w2a21_kernel>,
     .x_dtype = DType::kF32,
     .error_max = kFixedPointErrorMax},
    {.name = "gemm_w3a21_hwy",
     .w_layout = PackedLayout::kU3Quad,
     .why_not = dot_rejection<PackedLayout::kU3Quad, kNoActivations>,
     .launch = launch_dot<dot_gemm::w3a21_kernel>,
     .x_dtype = DType::kF32,
     .error_max = kFixedPointErrorMax},
    {.name = "gemm_w4a32_hwy",
     .w_layout = PackedLayout::kU4Quad,
     .why_not = quad_rejection<PackedLayout::kU4Quad, kU4Activations>,
     .launch = launch_quads<Precision::kFull>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_w8a32_hwy",
     .w_layout = PackedLayout::kU8Quad,
     .why_not = quad_rejection<PackedLayout::kU8Quad, kU8Activations>,
     .launch = launch_quads<Precision::kFull>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_w2a32_hwy",
     .w_layout = PackedLayout::kU2Quad,
     .why_not = quad_rejection<PackedLayout::kU2Quad, kNoActivations>,
     .launch = launch_quads<Precision::kFull>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_w3a32_hwy",
     .w_layout = PackedLayout::kU3Quad,
     .why_not = quad_rejection<PackedLayout::kU3Quad, kNoActivations>,
     .launch = launch_quads<Precision::kFull>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_fp8a32_hwy",
     .w_layout = PackedLayout::kF8E4M3Quad,
     .why_not = quad_rejection<PackedLayout::kF8E4M3Quad, kE4m3Activations>,
     .launch = launch_quads<Precision::kFull>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_fp4a32_hwy",
     .w_layout = PackedLayout::kE2m1Quad,
     .why_not = quad_rejection<PackedLayout::kE2m1Quad, kNoActivations>,
     .launch = launch_quads<Precision::kFull>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_nestedf16_hwy",
     .w_layout = PackedLayout::kNestedF16Quad,
     .why_not = nested_rejection<Precision::kFull>,
     .launch = launch_quads<Precision::kFull>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax},
    {.name = "gemm_nestedf8_hwy",
     .w_layout = PackedLayout::kNestedF16Quad,
     .why_not = nested_rejection<Precision::kLow>,
     .launch = launch_quads<Precision::kLow>,
     .x_dtype = DType::kF32,
     .error_max = kF32ErrorMax,
     .precision = Precision::kLow},
}};

}  // namespace

GemmProblem problem_of(const PackedWeight& weight) {
  return {.w_layout = weight.layout,
          .N = weight.N,
          .K = weight.K,
          .group_size = weight.quant.group_size,
          .zero_kind = weight.quant.zero_kind,
          .has_input_perm = !weight.quant.input_perm.empty(),
          .activation = weight.quant.activation};
}

const QuantParams& params_of(const PackedWeight& weight, Precision precision) {
  static const QuantParams kLowParams = [] {
    QuantParams params;
    params.activation = kLowActivation;
    return params;
  }();
  return precision == Precision::kLow ? kLowParams : weight.quant;
}

std::span<const GemmKernel> cpu_gemm_kernels() { return kCpuGemmKernels; }

const GemmKernel& find_gemm_kernel(const GemmProblem& problem) {
  std::string reasons;
  for (const GemmKernel& kernel : cpu_gemm_kernels()) {
    const std::string reason = kernel.why_not(problem);
    if (reason.empty()) return kernel;
    reasons += str(reasons.empty() ? "" : "; ", kernel.name, ": ", reason);
  }
  throw UnsupportedError(str("gemm: expected a kernel for a ", name_of(problem.w_layout),
                             " weight [", problem.N, ", ", problem.K, "], got none (", reasons,
                             "). Pack the weight in a layout that a kernel reads."));
}

}  // namespace halley
