// Times of products of a few rows and weights of 8, 3, 2 or 1 bits.
#pragma once

#include <span>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// Weights in groups of 128 with numbers, or with a scale for each output with codes.
struct TimedGemvProblem {
  const char* name = "";
  int bits = 8;
  DType x_dtype = DType::kF16;  // kI8: GemvInputs::kS8
};

/// "u8_f16", "u3_f16", "u2_f16", "u1_f16", "u2_s8" and "u1_s8".
std::span<const TimedGemvProblem> timed_gemv_problems();

/// Rows that are timed: more are a product of decoded weights, or of several launches.
inline constexpr int64_t kTimedGemvRowsMax = 8;

/// Products of gemv(), of those numbers of rows that are at most kTimedGemvRowsMax. As time_gemm().
/// Throws UnsupportedError where gemv() takes no such K.
std::vector<GemmTime> time_gemv(const CudaContext& context, const TimedGemvProblem& problem,
                                const TimeGemmOptions& options);

}  // namespace halley::cuda
