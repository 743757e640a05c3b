// Products by cuBLASLt: its handle, a fixed workspace, and one algorithm for each shape, chosen by
// its heuristics and never by timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include <cublasLt.h>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/cublaslt_library.h"
#include "halley/cuda/gemm/gemm_scales.h"
#include "halley/cuda/gemm/lt_problem.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct CublasLtOptions {
  /// Taken from the arena once. NVIDIA recommends 32 MiB on Hopper (cuBLAS 13, "cublasLt
  /// workspace").
  size_t workspace_bytes = size_t{32} << 20;
  LtChoice choice = {};
};

/// One product. All in device memory; rows begin at multiples of an element's size.
struct LtOperands {
  ConstMatrix x;  // [M, K]
  ConstMatrix w;  // [N, K]
  LtScaling scaling = LtScaling::kNone;
  /// kTensor: one number each. kVector: [M] and [N].
  const float* x_scales = nullptr;
  const float* w_scales = nullptr;
  /// [N] of y's type, or null.
  const std::byte* bias = nullptr;
};

/// One for each thread and stream: calls share the workspace.
///
/// Rows of y depend on M: algorithms are chosen for ranges of M (row_bucket()), and another
/// algorithm adds in another order, so that the last bits differ. LtChoice::is_batch_invariant
/// takes one algorithm without split-K for each (types, N, K), whatever M is: a row's bits are then
/// the same in every batch. Its cost is a tile that fits few or many rows badly; it must be
/// measured for the shapes in use (time_gemm.h).
class CublasLtGemm {
 public:
  /// Takes its workspace from the context's arena, which must outlive it and may not be released
  /// below. Throws DeviceError where cuBLASLt cannot start.
  CublasLtGemm(const CudaContext& context, const CublasLtOptions& options);

  /// Empty where cuBLASLt has algorithms for all M up to the largest bucket; otherwise which M has
  /// none, and why. The algorithms are kept: later products of these shapes ask nothing. Costs
  /// about a millisecond the first time.
  std::string why_no_algorithm(const LtProblem& problem);

  /// y [M, N] = x w^T (+ bias), scaled as `scaling` says. M and N at least 1. Numerics: f32 sums;
  /// s32 for i8, exact. Throws DeviceError that names the shape where cuBLASLt has no algorithm.
  void multiply(const CudaContext& context, const LtOperands& operands, Matrix y);

  /// "algorithm 66, tile 128, stages 36, split-K 1, cluster 0" of what runs for M rows; numbers as
  /// in cublasLt.h.
  std::string describe(const LtProblem& problem, int64_t M);

  const LtChoice& choice() const { return options_.choice; }

 private:
  struct Destroy {
    void operator()(cublasLtHandle_t handle) const { cublaslt().destroy(handle); }
  };
  struct Algorithm {
    bool is_found = false;
    cublasLtMatmulAlgo_t algo = {};
    std::string rejection;
  };

  const Algorithm& find_algorithm(const LtProblem& problem, int64_t M);
  Algorithm ask_algorithm(const LtProblem& problem, int64_t M) const;

  std::unique_ptr<cublasLtContext, Destroy> handle_;
  CublasLtOptions options_;
  std::byte* workspace_ = nullptr;
  std::map<LtKey, Algorithm> algorithms_;
};

}  // namespace halley::cuda
