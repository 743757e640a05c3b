// GEMM on the CPU: Y[M,N] = X[M,K] * W[N,K]^T (+ bias[N]) for weights in any packed layout. Holds
// the problem, the table of kernels and the choice.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"

namespace halley {

/// The properties of a weight by which a kernel is chosen. M is none of them: a result must not
/// depend on the batch.
struct GemmProblem {
  PackedLayout w_layout = PackedLayout::kF16Panel;
  int64_t N = 0;
  int64_t K = 0;
  // The members below are for quad layouts, as in QuantParams.
  int64_t group_size = 0;
  ZeroKind zero_kind = ZeroKind::kPoint;
  bool has_input_perm = false;
  ActivationQuant activation = ActivationQuant::kNone;
  /// kLow only where has_low_precision(w_layout).
  Precision precision = Precision::kFull;
};

/// Activation quantization of a weight in two precisions in the low one.
inline constexpr ActivationQuant kLowActivation = ActivationQuant::kE4m3Token;

/// `full` in low precision.
constexpr GemmProblem low_problem(GemmProblem full) {
  full.activation = kLowActivation;
  full.precision = Precision::kLow;
  return full;
}

/// The problem that a weight is for, in full precision.
GemmProblem problem_of(const PackedWeight& weight);

/// The weight's own, or, in low precision, those that replace them.
const QuantParams& params_of(const PackedWeight& weight, Precision precision);

/// One kernel. `launch` computes every element of y and nothing else; bias may be null.
/// Row m of y depends on row m of x alone, bit for bit: neither M nor the threads matter.
struct GemmKernel {
  const char* name;
  PackedLayout w_layout;
  /// Empty where the kernel runs the problem on this machine, otherwise why it cannot.
  std::string (*why_not)(const GemmProblem& problem);
  void (*launch)(ExecContext& context, const PackedWeight& weight, const float* bias, ConstMatrix x,
                 Matrix y);
  /// The type that the kernel itself rounds x to (nearest even), after the weight's `activation`;
  /// f32 where it does not round.
  DType x_dtype;
  /// Largest error of an element of y against gemm_reference() of the x it sees, relative to the
  /// sum of |x[k] w[k]| + |x[k] zero| scale: what the self-check at load allows.
  double error_max;
  /// The instructions that not every machine has; null where it runs on all.
  const char* needs = nullptr;
  /// The precision in which it multiplies, for layouts that have two.
  Precision precision = Precision::kFull;
};

/// All kernels of the CPU in order of preference.
std::span<const GemmKernel> cpu_gemm_kernels();

/// The first kernel that fits. Throws UnsupportedError that lists every kernel's reason.
const GemmKernel& find_gemm_kernel(const GemmProblem& problem);

}  // namespace halley
