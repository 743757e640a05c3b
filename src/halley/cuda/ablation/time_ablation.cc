#include "halley/cuda/ablation/time_ablation.h"

#include <algorithm>

#include "halley/base/str.h"
#include "halley/cuda/ablation/ablation.h"
#include "halley/cuda/w4ax_gemm/time_w4ax_gemm.h"

namespace halley::cuda {
namespace {

/// Microseconds.
double time_variant(const CudaContext& context, const TimedW4axWeight& weight,
                    const AblationVariant& variant, const TilePlan& plan, int64_t M) {
  const W4axOperands operands = weight.operands(M);
  return time_products(context, weight.num_copies(), [&](size_t copy) {
    ablated_w4ax_gemm(context, variant, weight.copy(copy), operands, plan, weight.outputs(M));
  });
}

struct TimedPlan {
  TilePlan plan = {};
  double microseconds = 0;
};

/// The fastest plan without shared tiles.
TimedPlan fastest_whole_plan(const CudaContext& context, const TimedW4axWeight& weight, int64_t M) {
  TimedPlan best;
  for (size_t tile = 0; tile < w4ax_family().tiles.size(); ++tile) {
    // Much smaller tiles read weights too often, much larger ones waste rows.
    const int64_t tokens = w4ax_family().tiles[tile].tile.tokens;
    if (tokens > std::max<int64_t>(2 * M, 16) || M > 16 * tokens) continue;
    const TilePlan plan = plan_whole_tiles(weight.shape(M), context.device, static_cast<int>(tile));
    const double microseconds = time_variant(context, weight, {.name = "whole"}, plan, M);
    if (best.microseconds > 0 && microseconds >= best.microseconds) continue;
    best = {plan, microseconds};
  }
  return best;
}

void add_times(const CudaContext& context, const TimedW4axWeight& weight, int64_t M,
               const GpuRates& rates, std::vector<AblationTime>* times) {
  const ProductShape shape = weight.shape(M);
  const TilePlan full_plan = plan_tiles(w4ax_family(), shape, context.device);
  const TimedPlan whole = fastest_whole_plan(context, weight, M);
  double full_microseconds = 0;
  for (const AblationVariant& variant : ablation_variants()) {
    const TilePlan& plan = variant.has_whole_tiles ? whole.plan : full_plan;
    const double microseconds = time_variant(context, weight, variant, plan, M);
    if (full_microseconds == 0) full_microseconds = microseconds;  // the first variant is "full"
    times->push_back({.variant = variant.name,
                      .plan = str(plan),
                      .N = shape.N,
                      .K = shape.K,
                      .M = M,
                      .microseconds = microseconds,
                      .ratio = microseconds / full_microseconds,
                      .floor_microseconds = weight.floor_microseconds(rates, M)});
  }
}

}  // namespace

std::vector<AblationTime> time_ablation(const CudaContext& context,
                                        const TimeAblationOptions& options) {
  std::vector<AblationTime> times;
  if (options.rows.empty()) return times;
  const int64_t rows_max = *std::max_element(options.rows.begin(), options.rows.end());
  for (const auto& [N, K] : options.shapes.empty() ? llama_gemm_shapes() : options.shapes) {
    const TimedW4axWeight weight(context, {.M = rows_max, .N = N, .K = K});
    for (const int64_t M : options.rows) add_times(context, weight, M, options.rates, &times);
  }
  return times;
}

}  // namespace halley::cuda
