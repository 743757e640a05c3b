// Times of products of weights in two planes, in both of their precisions.
#pragma once

#include <vector>

#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// "nested_f16", of normal weights and inputs; a kernel is a plan. As time_gemm(). Takes the
/// largest plan's workspace.
std::vector<GemmTime> time_nested_gemm(const CudaContext& context, const TimeGemmOptions& options);

/// The fastest plan for each number of rows, of launches that start early; measured as
/// time_nested_gemm() does.
std::vector<TunedPlan> tune_nested_gemm(const CudaContext& context, const TunedGemm& gemm,
                                        const std::vector<int64_t>& rows,
                                        const OnTunedPlan& on_plan);

/// "nested_fp8": products of the upper planes of normal weights by the kernels that a layer has for
/// them, with a scale for each row of x, and beside them cuBLASLt's with one scale for all, which
/// no layer takes. As time_gemm().
std::vector<GemmTime> time_nested_fp8(const CudaContext& context, CublasLtGemm& lt,
                                      const TimeGemmOptions& options);

}  // namespace halley::cuda
