#include "halley/quant/fmpq/plan_blocks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/quant/fmpq/block_weight.h"

namespace halley {
namespace {

/// The magnitudes and saliences of the channels.
struct Channels {
  std::vector<double> magnitudes;  // largest
  std::vector<double> saliences;   // magnitude times importance
  std::vector<bool> are_outliers;
  int64_t num_outliers = 0;
};

Channels rank_channels(const InputStats& stats, std::span<const float> importance,
                       double outlier_ratio) {
  Channels channels;
  for (size_t k = 0; k < importance.size(); ++k) {
    // A NaN would break the sort.
    const double weight = std::isfinite(importance[k]) ? importance[k] : 0;
    channels.magnitudes.push_back(stats.abs_max[k]);
    channels.saliences.push_back(channels.magnitudes.back() * weight);
  }
  const double limit = outlier_limit(stats.abs_max, outlier_ratio);
  for (const double magnitude : channels.magnitudes) {
    channels.are_outliers.push_back(magnitude > 0 && magnitude >= limit);
    channels.num_outliers += channels.are_outliers.back() ? 1 : 0;
  }
  return channels;
}

std::vector<int32_t> order_channels(const Channels& channels, int64_t num_s8_inputs) {
  std::vector<int32_t> perm(channels.magnitudes.size());
  std::iota(perm.begin(), perm.end(), 0);
  const auto at = [](const auto& values, int32_t k) { return values[static_cast<size_t>(k)]; };
  std::stable_sort(perm.begin(), perm.end(), [&](int32_t a, int32_t b) {
    const bool is_first = at(channels.are_outliers, a), is_second = at(channels.are_outliers, b);
    if (is_first != is_second) return is_first;
    return at(channels.saliences, a) > at(channels.saliences, b);
  });
  std::stable_sort(perm.begin() + num_s8_inputs, perm.end(), [&](int32_t a, int32_t b) {
    return at(channels.magnitudes, a) > at(channels.magnitudes, b);
  });
  return perm;
}

double rounding_error(const InputStats& stats, std::span<const float> importance,
                      const BlockPlan& plan) {
  QuantParams quant;
  quant.activation = ActivationQuant::kS4S8Block128;
  quant.input_perm = plan.input_perm;
  quant.num_s8_inputs = plan.num_s8_inputs;
  const auto num_inputs = static_cast<size_t>(stats.K);
  std::vector<float> rounded(num_inputs);
  double error = 0, total = 0;
  for (int64_t m = 0; m < stats.num_rows; ++m) {
    const std::span<const float> x(stats.rows.data() + m * stats.K, num_inputs);
    round_activations(quant, x, rounded.data());
    for (size_t k = 0; k < num_inputs; ++k) {
      const double weight = double{importance[k]} * double{importance[k]};
      const double difference = double{x[k]} - double{rounded[k]};
      error += weight * difference * difference;
      total += weight * double{x[k]} * double{x[k]};
    }
  }
  return total > 0 ? error / total : 0;
}

}  // namespace

double outlier_limit(std::span<const float> magnitudes, double outlier_ratio) {
  std::vector<double> values(magnitudes.begin(), magnitudes.end());
  std::erase_if(values, [](double value) { return value <= 0; });
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return outlier_ratio * *middle;
}

std::vector<float> column_norms(std::span<const ConstMatrix> weights) {
  HALLEY_CHECK(!weights.empty(), weights.size());
  std::vector<double> sums(static_cast<size_t>(weights[0].num_cols));
  for (const ConstMatrix& weight : weights) {
    HALLEY_CHECK(weight.num_cols == weights[0].num_cols, weight.num_cols, weights[0].num_cols);
    for (int64_t n = 0; n < weight.num_rows; ++n) {
      const float* row = weight.row<float>(n);
      for (size_t k = 0; k < sums.size(); ++k) sums[k] += double{row[k]} * double{row[k]};
    }
  }
  std::vector<float> norms;
  for (const double sum : sums) norms.push_back(static_cast<float>(std::sqrt(sum)));
  return norms;
}

BlockPlan plan_blocks(const InputStats& stats, std::span<const float> importance,
                      const BlockOptions& options) {
  HALLEY_CHECK(static_cast<int64_t>(importance.size()) == stats.K, importance.size(), stats.K);
  HALLEY_CHECK(stats.abs_max.size() == importance.size(), stats.abs_max.size(), stats.K);
  const Channels channels = rank_channels(stats, importance, options.outlier_ratio);
  const int64_t num_blocks = ceil_div(stats.K, kFmpqBlock);
  const auto of_share =
      static_cast<int64_t>(options.s8_share_max * static_cast<double>(num_blocks));
  const int64_t num_allowed =
      std::clamp<int64_t>(of_share, channels.num_outliers > 0 ? 1 : 0, num_blocks);
  const auto plan_with = [&](int64_t num_s8_blocks) {
    BlockPlan plan;
    plan.num_blocks = num_blocks;
    plan.num_s8_blocks = num_s8_blocks;
    plan.num_s8_inputs = std::min(stats.K, num_s8_blocks * kFmpqBlock);
    plan.num_outliers = channels.num_outliers;
    plan.input_perm = order_channels(channels, plan.num_s8_inputs);
    plan.error = rounding_error(stats, importance, plan);
    return plan;
  };
  if (options.error_target == 0) {
    return plan_with(std::min(num_allowed, ceil_div(channels.num_outliers, kFmpqBlock)));
  }
  BlockPlan plan = plan_with(0);
  while (plan.error > options.error_target && plan.num_s8_blocks < num_allowed) {
    plan = plan_with(plan.num_s8_blocks + 1);
  }
  return plan;
}

void S4Work::add(int64_t N, int64_t K, int64_t num_s8_inputs) {
  HALLEY_CHECK(num_s8_inputs >= 0 && num_s8_inputs <= K, num_s8_inputs, K);
  s4_ += static_cast<double>(N) * static_cast<double>(K - num_s8_inputs);
  total_ += static_cast<double>(N) * static_cast<double>(K);
}

}  // namespace halley
