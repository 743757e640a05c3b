// The problems of `halley bench gemm`: how each is timed, and which problems it is compared with.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "halley/cli/gemm_summary.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cli {

struct GemmBenchProblem {
  std::string_view name;
  /// Describes weights and activations.
  std::string_view what;
  std::vector<cuda::GemmTime> (*time)(const CudaContext& context, cuda::CublasLtGemm& lt,
                                      std::string_view name, const cuda::TimeGemmOptions& options);
  /// Problems whose activations lose no more than these.
  std::span<const std::string_view> peers;
  /// Its kernels need compute capability 9.0.
  bool needs_hopper = true;
};

std::span<const GemmBenchProblem> gemm_bench_problems();

/// The ratios that the summary has.
std::span<const ProblemRatio> gemm_bench_ratios();

}  // namespace halley::cli
