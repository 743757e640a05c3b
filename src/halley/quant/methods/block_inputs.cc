#include "halley/quant/methods/block_inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "halley/base/checked_math.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/kernels/linalg/linalg.h"
#include "halley/quant/fmpq/s4_clip_search.h"
#include "halley/quant/solve/grid_rule.h"
#include "halley/quant/solve/scale_search.h"

namespace halley {
namespace {

// Outputs and rows that the search for smoothing factors looks at: a sample ranks candidates as the
// whole does.
constexpr int64_t kSampledOutputs = 2048;
constexpr int64_t kSampledRows = 128;
// The clip of 4-bit blocks that searches on most layers end near; for ranking smoothings only.
constexpr float kUsualClip = 0.85f;

QuantParams params_of(const InputPlan& plan) {
  QuantParams params;
  params.activation = ActivationQuant::kS4S8Block128;
  params.num_s8_inputs = plan.num_s8_inputs;
  params.s4_clip = plan.s4_clip;
  params.input_perm = plan.perm;
  return params;
}

/// Root mean squares of the channels over the kept rows.
std::vector<float> channel_rms(const InputStats& stats) {
  std::vector<double> squares(static_cast<size_t>(stats.K), 0.0);
  const ConstMatrix x = stats.row_matrix();
  for (int64_t m = 0; m < x.num_rows; ++m) {
    const float* row = x.row<float>(m);
    for (size_t k = 0; k < squares.size(); ++k) squares[k] += double{row[k]} * double{row[k]};
  }
  std::vector<float> rms(squares.size());
  const double num_rows = std::max<double>(1, static_cast<double>(x.num_rows));
  std::transform(squares.begin(), squares.end(), rms.begin(),
                 [&](double square) { return static_cast<float>(std::sqrt(square / num_rows)); });
  return rms;
}

/// Plans with an outlier ratio of zero, so that the share of 8-bit blocks is used up, or with none
/// where the share is zero. Channels rank by root mean square times the norm of their weights.
BlockPlan plan_channels(const Recipe& recipe, const InputStats& stats,
                        std::span<const ConstMatrix> weights) {
  const std::vector<float> rms = channel_rms(stats);
  std::vector<float> importance = column_norms(weights);
  for (size_t k = 0; k < importance.size(); ++k) {
    // plan_blocks() multiplies by the largest magnitude.
    importance[k] *= stats.abs_max[k] > 0 ? rms[k] / stats.abs_max[k] : 0.0f;
  }
  const double outlier_ratio =
      recipe.s8_share_max > 0 ? 0 : std::numeric_limits<double>::infinity();
  BlockPlan plan = plan_blocks(
      stats, importance, {.s8_share_max = recipe.s8_share_max, .outlier_ratio = outlier_ratio});
  if (!recipe.is_reordered) std::iota(plan.input_perm.begin(), plan.input_perm.end(), 0);
  return plan;
}

/// Rows of `from` at even distances, at most `count`.
std::vector<float> sample_rows(std::span<const ConstMatrix> from, int64_t count,
                               int64_t& num_rows) {
  int64_t total = 0;
  for (const ConstMatrix& part : from) total += part.num_rows;
  const int64_t step = std::max<int64_t>(1, ceil_div(total, count));
  std::vector<float> rows;
  int64_t index = 0;
  num_rows = 0;
  for (const ConstMatrix& part : from) {
    for (int64_t n = 0; n < part.num_rows; ++n, ++index) {
      if (index % step != 0) continue;
      rows.insert(rows.end(), part.row<float>(n), part.row<float>(n) + part.num_cols);
      ++num_rows;
    }
  }
  return rows;
}

/// The outputs [R, N] of x [R, K] and w [N, K] after both were quantized.
std::vector<float> rounded_outputs(const Recipe& recipe, ExecContext& context,
                                   const InputStats& stats, std::vector<float> w, int64_t N) {
  const int64_t K = stats.K, R = stats.num_rows;
  const ConstMatrix weights[] = {f32_matrix(std::as_const(w).data(), N, K)};
  const BlockPlan blocks = plan_channels(recipe, stats, weights);
  const QuantParams params = params_of({.perm = blocks.input_perm,
                                        .num_s8_blocks = blocks.num_s8_blocks,
                                        .num_blocks = blocks.num_blocks,
                                        .num_s8_inputs = blocks.num_s8_inputs,
                                        .s4_clip = kUsualClip});
  std::vector<float> x(static_cast<size_t>(R * K)), packed(static_cast<size_t>(N * K)),
      y(static_cast<size_t>(R * N));
  prepare_activations(context, params, stats.row_matrix(), f32_matrix(x.data(), R, K));
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) {
      packed[static_cast<size_t>(n * K + k)] =
          w[static_cast<size_t>(n * K + blocks.input_perm[static_cast<size_t>(k)])];
    }
  }
  const Matrix in_order = f32_matrix(packed.data(), N, K);
  const GridOptions grid = {.bits = 4, .group_size = kActivationGroup, .is_symmetric = true};
  const auto rule = make_minmax_rule(grid, {}, ceil_div(K, kActivationGroup));
  const QuantizedWeight quantized = round_to_nearest(context, in_order, *rule);
  for (int64_t n = 0; n < N; ++n) {
    dequantize_row(quantized, n, {in_order.row<float>(n), static_cast<size_t>(K)});
  }
  multiply_transposed(context, f32_matrix(std::as_const(x).data(), R, K), in_order,
                      f32_matrix(y.data(), R, N));
  return y;
}

}  // namespace

std::vector<float> search_block_factors(const Recipe& recipe, ExecContext& context,
                                        std::span<const ConstMatrix> weights,
                                        const InputStats& stats, std::span<const int32_t> groups) {
  const int64_t K = stats.K;
  int64_t N = 0, R = 0;
  const std::vector<float> w = sample_rows(weights, kSampledOutputs, N);
  const ConstMatrix all_rows[] = {stats.row_matrix()};
  const std::vector<float> x = sample_rows(all_rows, kSampledRows, R);
  std::vector<float> exact(static_cast<size_t>(R * N));
  multiply_transposed(context, f32_matrix(x.data(), R, K), f32_matrix(w.data(), N, K),
                      f32_matrix(exact.data(), R, N));
  std::vector<float> best;
  double error_min = 0;
  for (const double alpha : {0.0, 0.3, 0.4, 0.5, 0.6, 0.7}) {
    std::vector<float> factors;
    std::vector<float> changed = w;
    InputStats scaled = sample_of(stats, x, R);
    const bool is_scaled = alpha > 0;  // 0 stands for no factors at all
    if (is_scaled) {
      factors = smooth_factors(weights, stats, alpha, groups);
      scale_stats(scaled, inverse_of(factors));
      for (size_t i = 0; i < changed.size(); ++i) {
        changed[i] *= factors[i % static_cast<size_t>(K)];
      }
    }
    const double error =
        squared_distance(exact, rounded_outputs(recipe, context, scaled, std::move(changed), N));
    if (!is_scaled || error < error_min) {
      error_min = error;
      best = std::move(factors);
    }
  }
  return best;
}

BlockPlan plan_point(const Recipe& recipe, LayerInWork& layer, const ScalePoint& point) {
  return plan_channels(recipe, layer.stats.of(*point.consumers.front()),
                       consumer_weights(layer, point));
}

InputPlan plan_input(const Recipe& recipe, LayerInWork& layer, const ScalePoint& point) {
  BlockPlan blocks = plan_point(recipe, layer, point);
  InputPlan plan = {.perm = {},
                    .num_s8_blocks = blocks.num_s8_blocks,
                    .num_blocks = blocks.num_blocks,
                    .num_s8_inputs = blocks.num_s8_inputs};
  if (recipe.has_activation_clip) {
    plan.s4_clip = search_s4_clip(layer.context, consumer_weights(layer, point),
                                  layer.stats.of(*point.consumers.front()), blocks)
                       .ratio;
  }
  if (!recipe.is_reordered) return plan;
  plan.perm = std::move(blocks.input_perm);
  // Free: gate and up rows are permuted instead, and the kernel has nothing to gather.
  if (point.can_permute && point.kind == InputKind::kMlpOut) {
    permute_point(layer, point, plan.perm);
    plan.perm.clear();
  }
  return plan;
}

RoundedStats::RoundedStats(ExecContext& context,
                           const std::map<const LinearSpec*, InputPlan>& plans)
    : context_(context) {
  for (const auto& [spec, plan] : plans) {
    params_.emplace(spec, params_of(plan));
    collectors_.emplace(spec, InputStatsCollector(spec->in_features, {.has_gram = true}));
  }
}

void RoundedStats::on_linear(const LinearSpec& spec, const LinearOp&, ConstMatrix x, ConstMatrix) {
  const auto found = params_.find(&spec);
  if (found == params_.end()) return;
  rounded_.resize(static_cast<size_t>(x.num_rows * x.num_cols));
  const Matrix rounded = f32_matrix(rounded_.data(), x.num_rows, x.num_cols);
  prepare_activations(context_, found->second, x, rounded);
  collectors_.at(&spec).add(context_, rounded);
}

void RoundedStats::finish() {
  for (auto& [spec, collector] : collectors_) stats_.emplace(spec, collector.finish(context_));
  collectors_.clear();
}

}  // namespace halley
