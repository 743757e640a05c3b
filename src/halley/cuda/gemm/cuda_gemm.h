// Y[M,N] = X[M,K] W[N,K]^T (+ bias[N]) on the GPU: the problem, the table of kernels, the choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/kernels/activation/activation.h"

namespace halley::cuda {

class CublasLtGemm;

/// What is asked. Of M the choice knows one thing: kernels for few rows stand beside those for all
/// (CudaGemmChoice). cuBLASLt's algorithm depends on M too (cublaslt_gemm.h).
struct CudaGemmProblem {
  /// Of X and W alike: f16, bf16, f32, f8_e4m3 or i8.
  DType dtype = DType::kF16;
  /// f16, bf16 or f32.
  DType y_dtype = DType::kF16;
  int64_t N = 0;
  int64_t K = 0;
  /// Of f8_e4m3 and i8: what shares a scale.
  ScaleSpan x_scale = ScaleSpan::kNone;
  ScaleSpan w_scale = ScaleSpan::kNone;
  /// i8: outputs have offsets (RowScales::w_offsets).
  bool has_offsets = false;
  bool has_bias = false;
  /// Whether all rows of Y begin at multiples of 16 bytes.
  bool is_y_aligned = true;
};

std::ostream& operator<<(std::ostream& out, const CudaGemmProblem& problem);

/// All in device memory. Where a kernel says that it pads (CudaGemmKernel::is_padded), X has memory
/// for round_up(M, kGemmPadding) rows and W for round_up(N, kGemmPadding), rows of both have
/// round_up(K, kGemmPadding) elements, and the elements behind K are zero; all of them begin at
/// multiples of 16 bytes. What the rows behind M and N hold is of no importance.
struct CudaGemmOperands {
  ConstMatrix x;  // [M, K]
  ConstMatrix w;  // [N, K]
  RowScales scales = {};
  const float* bias = nullptr;  // [N]
  /// The same bias rounded to y's type; may be null where that is f32 or there is no bias. Kernels
  /// of cuBLASLt that write y themselves add it, and may round the sum to y's type before (seen in
  /// bf16 at M = 1 on an H200); all others add `bias` in f32 and round once.
  const std::byte* rounded_bias = nullptr;
};

/// What instructions that read 16 bytes, and the INT8 and FP8 products of cuBLASLt, ask of sizes.
inline constexpr int64_t kGemmPadding = 16;

/// One kernel. `launch` queues what computes every element of y and nothing else.
struct CudaGemmKernel {
  const char* name;
  DType dtype;
  /// What it takes, in words, for lists.
  const char* takes;
  bool is_padded;
  /// Whether cuBLASLt must have an algorithm for it: asked at load, of a GPU.
  bool needs_algorithm;
  /// Empty where the kernel runs the problem, otherwise why it cannot. Needs no GPU.
  std::string (*why_not)(const CudaGemmProblem& problem);
  /// Bytes that `launch` takes from the workspace for M rows.
  size_t (*workspace_bytes)(const CudaGemmProblem& problem, int64_t M);
  void (*launch)(CublasLtGemm& lt, const CudaContext& context, const CudaGemmProblem& problem,
                 const CudaGemmOperands& operands, Matrix y);
  /// The most rows that it is meant for, or 0: any number.
  int64_t rows_max = 0;
  /// Null, or whether it is the one for M rows, of those that take as many.
  bool (*is_for)(const CudaGemmProblem& problem, int64_t M) = nullptr;
  /// Null, or the product and a gated activation in one: y[m,i] = f(z[m,i]) * z[m,N/2+i], where z
  /// is the product with the bias, rounded to y's type. The same bits as both one after the other.
  void (*launch_gated)(const CudaContext& context, const CudaGemmOperands& operands,
                       Activation activation, Matrix y) = nullptr;
  /// How cuBLASLt is asked; of kernels that need it.
  LtScaling scaling = LtScaling::kNone;
  bool writes_accumulators = false;
};

/// All kernels in order of preference.
std::span<const CudaGemmKernel> cuda_gemm_kernels();

struct CudaGemmChoice {
  CudaGemmProblem problem = {};
  const CudaGemmKernel* kernel = nullptr;
  /// Better-placed kernels of this type and why each was rejected.
  std::vector<std::string> rejections;
  /// Faster ones for at most rows_max rows each, and for what `is_for` says; inputs begin at
  /// multiples of 16 bytes.
  std::vector<const CudaGemmKernel*> for_few_rows;
  /// Why not, of other kernels for few rows.
  std::vector<std::string> few_rows_rejections;

  /// What runs for these inputs.
  const CudaGemmKernel& kernel_for(ConstMatrix x) const;
};

/// The first kernel of the table that runs the problem with any number of rows, and those for few
/// rows before it. With `lt`, only what cuBLASLt has algorithms for, and none for few rows where
/// `lt` keeps one algorithm for all batches; without (no GPU at hand), what the rules alone say.
/// Throws UnsupportedError that lists the reasons where none does: a type that no kernel reads.
CudaGemmChoice choose_cuda_gemm_kernel(const CudaGemmProblem& problem, CublasLtGemm* lt);

/// Rows of accumulators that fit into kAccumulatorBytesMax: larger products that need accumulators
/// run in pieces of this many rows. A multiple of kGemmPadding.
int64_t accumulator_rows_max(int64_t N);
inline constexpr size_t kAccumulatorBytesMax = size_t{128} << 20;

}  // namespace halley::cuda
