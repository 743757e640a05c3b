// Times of the products of 4-bit weights beside cuBLASLt's in f16 and the least that memory and
// tensor cores allow.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/mixed_gemm/mixed_layout.h"
#include "halley/cuda/mixed_gemm/mixed_plan.h"
#include "halley/cuda/mixed_gemm/tuned_plans.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct TimeMixedOptions {
  /// [N, K] of weights. Empty: the linear layers of Llama-3 8B and 70B.
  std::vector<std::pair<int64_t, int64_t>> shapes = {};
  std::vector<int64_t> rows = {1, 16, 64, 128, 256, 2048};
  std::vector<MixedKind> kinds = {MixedKind::kU4S8, MixedKind::kU4GroupS8, MixedKind::kU4F16,
                                  MixedKind::kU4Bf16};
  /// Of the kinds with groups: 32, 64 or 128.
  int group_size = 128;
  /// Times every tile with its best schedule, the chosen one among them.
  bool has_all_tiles = false;
  /// Times all also with launches that start early (MixedOperands).
  bool has_early_starts = false;
  /// cuBLASLt's product in f16 too.
  bool has_f16 = true;
  GpuRates rates = {};
};

struct MixedGemmTime {
  std::string problem = {};  // a kind's name, or "f16" of cuBLASLt
  std::string plan = {};     // of a kind
  bool is_chosen = true;
  bool starts_early = false;
  int64_t N = 0, K = 0, M = 0;
  double microseconds = 0;
  double floor_microseconds = 0;
  double weight_bytes = 0;  // with the parameters of groups
};

/// The larger of both, of the bytes that must move (the packed weight, x, y in f16) and of the
/// operations.
double mixed_floor_microseconds(const GpuRates& rates, const MixedShape& shape);

/// As time_gemm(): f16 outputs, codes of activations are there, weights rotated so that none is in
/// the L2 cache, a captured graph of at least 20 products, best of three. Takes device memory of
/// about three L2 caches and two of the largest weight.
std::vector<MixedGemmTime> time_mixed_gemm(const CudaContext& context, CublasLtGemm& lt,
                                           const TimeMixedOptions& options = {});

/// The fastest plan of one layer for each number of rows, of launches that start early; measured as
/// time_mixed_gemm() does. `on_plan` may be empty. M of the layer does not matter.
std::vector<TunedMixedPlan> tune_mixed_gemm(
    const CudaContext& context, const MixedShape& layer, const std::vector<int64_t>& rows,
    const std::function<void(const TunedMixedPlan&)>& on_plan);

}  // namespace halley::cuda
