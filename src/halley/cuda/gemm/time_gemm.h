// Times of the GPU's products beside the least that memory and tensor cores allow.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "halley/core/matrix.h"
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// What is asked of the table of kernels.
struct TimedGemmProblem {
  const char* name = "";
  DType dtype = DType::kF16;
  ScaleSpan scale = ScaleSpan::kNone;  // of x and of the weight
};

/// Products with f16 outputs, by all kernels that a layer may run for few rows; codes of
/// activations are there already, so that rounding them is not in the times. Weights hold the
/// pattern and are rotated so that none is in the L2 cache; one captured graph runs at least 20
/// products; median of three graphs. Takes device memory of about three L2 caches and two of the
/// largest weight beside the workspace. Throws as CublasLtGemm::multiply().
std::vector<GemmTime> time_gemm(const CudaContext& context, CublasLtGemm& lt,
                                const TimedGemmProblem& problem,
                                std::span<const uint8_t> weight_pattern,
                                const TimeGemmOptions& options);

/// The same of random numbers: "f16", "fp8_tensor", "fp8_row" or "s8".
std::vector<GemmTime> time_gemm(const CudaContext& context, CublasLtGemm& lt,
                                std::string_view problem, const TimeGemmOptions& options);

/// The fastest choice of a streamed GEMM (streamed_shape_of()) for each number of rows that it
/// takes, of launches that start early; weights as time_gemm() has them.
std::vector<TunedPlan> tune_streamed_gemm(const CudaContext& context, const TunedGemm& gemm,
                                          const std::vector<int64_t>& rows,
                                          const OnTunedPlan& on_plan);

double gemm_floor_microseconds(const GpuRates& rates, const CudaGemmProblem& problem, int64_t M);

}  // namespace halley::cuda
