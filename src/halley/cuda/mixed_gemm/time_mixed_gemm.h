// Times of the products of packed weights beside the least that memory and tensor cores allow.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/mixed_plan.h"
#include "halley/cuda/mixed_gemm/mixed_settings.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct TimeMixedOptions {
  TimeGemmOptions gemm = {};
  std::vector<MixedKind> kinds = {MixedKind::kU4S8, MixedKind::kU4GroupS8, MixedKind::kU4F16,
                                  MixedKind::kU4Bf16};
  /// Of the kinds with groups: 32, 64 or 128.
  int group_size = 128;
};

double mixed_floor_microseconds(const GpuRates& rates, const MixedShape& shape);

/// As time_gemm(); a problem has its kind's name, a kernel is a plan. Random codes.
std::vector<GemmTime> time_mixed_gemm(const CudaContext& context, const TimeMixedOptions& options);

/// The fastest plan of the GEMM (mixed_shape_of()) for each number of rows, of launches that start
/// early; measured as time_mixed_gemm() does.
std::vector<TunedPlan> tune_mixed_gemm(const CudaContext& context, const TunedGemm& gemm,
                                       const std::vector<int64_t>& rows,
                                       const OnTunedPlan& on_plan);

}  // namespace halley::cuda
