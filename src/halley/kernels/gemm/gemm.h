// Y[M,N] = X[M,K] * W[N,K]^T (+ bias[N]) for weights in any packed layout: the problem, the table
// of kernels, the choice.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/core/packed_weight.h"

namespace halley {

/// What is asked. M is not part of the choice: a result must not depend on the batch.
struct GemmProblem {
  PackedLayout w_layout = PackedLayout::kF16Panel;
  int64_t N = 0;
  int64_t K = 0;
};

/// One kernel. `launch` computes every element of y and nothing else; bias may be null.
/// Row m of y depends on row m of x alone, bit for bit: neither M nor the threads matter.
struct GemmKernel {
  const char* name;
  PackedLayout w_layout;
  /// Empty where the kernel runs the problem on this machine, otherwise why it cannot.
  std::string (*why_not)(const GemmProblem& problem);
  void (*launch)(ExecContext& context, const PackedWeight& weight, const float* bias, ConstMatrix x,
                 Matrix y);
  /// What x is rounded to (nearest even) before it is multiplied; f32 where it is not rounded.
  DType x_dtype;
};

/// All kernels of the CPU in order of preference.
std::span<const GemmKernel> cpu_gemm_kernels();

/// The first kernel that fits. Throws UnsupportedError that lists every kernel's reason.
const GemmKernel& find_gemm_kernel(const GemmProblem& problem);

/// Slow, f64, obvious: y from the definition. x is f32; W is read through unpack_row().
void gemm_reference(const PackedWeight& weight, const float* bias, ConstMatrix x, Matrix y);

}  // namespace halley
