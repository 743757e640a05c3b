#include "halley/quant/solve/scale_search.h"

#include <algorithm>
#include <cmath>

#include "halley/base/check.h"
#include "halley/core/host_buffer.h"
#include "halley/kernels/base/row_tasks.h"
#include "halley/kernels/linalg/linalg.h"

namespace halley {
namespace {

constexpr int kNumRatios = 20;
// AutoAWQ's floor of mean|x|^a: a channel that is almost always zero does not set the scale of all
// others.
constexpr double kPowerMin = 1e-4;
// Factors of smoothing: SmoothQuant's floor, and its inverse.
constexpr double kFactorMin = 1e-5;
constexpr double kFactorMax = 1e5;

/// Every channel gets the largest value of its group.
void join_groups(std::vector<double>& values, std::span<const int32_t> groups) {
  if (groups.empty()) return;
  HALLEY_CHECK(groups.size() == values.size(), groups.size(), values.size());
  HALLEY_CHECK(*std::min_element(groups.begin(), groups.end()) >= 0);
  const int32_t last = *std::max_element(groups.begin(), groups.end());
  std::vector<double> largest(static_cast<size_t>(last) + 1, 0.0);
  for (size_t k = 0; k < values.size(); ++k) {
    double& of_group = largest[static_cast<size_t>(groups[k])];
    of_group = std::max(of_group, values[k]);
  }
  for (size_t k = 0; k < values.size(); ++k) values[k] = largest[static_cast<size_t>(groups[k])];
}

void check_weights(std::span<const ConstMatrix> weights, int64_t K) {
  HALLEY_CHECK(!weights.empty());
  for (const ConstMatrix& w : weights) {
    HALLEY_CHECK(w.num_cols == K && w.dtype == DType::kF32, w.num_cols, K, name_of(w.dtype));
  }
}

std::vector<float> awq_factors(const std::vector<double>& means, double ratio) {
  double power_min = 0, power_max = 0;
  std::vector<double> powers(means.size());
  for (size_t k = 0; k < means.size(); ++k) {
    if (means[k] == 0) continue;
    powers[k] = std::max(std::pow(means[k], ratio), kPowerMin);
    power_min = power_max == 0 ? powers[k] : std::min(power_min, powers[k]);
    power_max = std::max(power_max, powers[k]);
  }
  const double middle = std::sqrt(power_max * power_min);
  std::vector<float> factors(means.size(), 1.0f);
  for (size_t k = 0; k < means.size(); ++k) {
    if (means[k] != 0) factors[k] = static_cast<float>(powers[k] / middle);
  }
  return factors;
}

/// The error at the outputs of quantized weights.
class OutputErrors {
 public:
  OutputErrors(ExecContext& context, std::span<const ConstMatrix> weights, const InputStats& stats,
               const FakeQuantize& quantize)
      : context_(context), weights_(weights), x_(stats.row_matrix()), quantize_(quantize) {
    int64_t num_rows_max = 0;
    for (const ConstMatrix& w : weights) {
      num_rows_max = std::max(num_rows_max, w.num_rows);
      num_outputs_ += w.num_rows;
    }
    const auto size = static_cast<size_t>(num_rows_max);
    changed_ = HostBuffer(size * static_cast<size_t>(stats.K) * sizeof(float));
    outputs_ = HostBuffer(size * static_cast<size_t>(x_.num_rows) * sizeof(float));
  }

  /// Mean squared difference of the outputs where weights are quantize(w * factors) / factors.
  double mean(const std::vector<float>& factors) {
    const int64_t num_values = num_outputs_ * x_.num_rows;
    if (num_values == 0) return 0;
    double sum = 0;
    for (const ConstMatrix& w : weights_) sum += sum_of(w, factors);
    return sum / static_cast<double>(num_values);
  }

 private:
  double sum_of(ConstMatrix w, std::span<const float> all_factors) {
    const int64_t K = w.num_cols;
    const float* factors = all_factors.data();
    const Matrix changed = f32_matrix(changed_.as<float>().data(), w.num_rows, K);
    for_row_ranges(context_, w.num_rows, K, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const float* from = w.row<float>(n);
        float* to = changed.row<float>(n);
        for (int64_t k = 0; k < K; ++k) to[k] = from[k] * factors[k];
      }
    });
    quantize_(changed, all_factors);
    for_row_ranges(context_, w.num_rows, K, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const float* from = w.row<float>(n);
        float* to = changed.row<float>(n);
        for (int64_t k = 0; k < K; ++k) to[k] = to[k] / factors[k] - from[k];
      }
    });
    const Matrix y = f32_matrix(outputs_.as<float>().data(), w.num_rows, x_.num_rows);
    multiply_transposed(context_, changed, x_, y);
    return sum_of_squares(y);
  }

  double sum_of_squares(ConstMatrix y) {
    row_sums_.assign(static_cast<size_t>(y.num_rows), 0.0);
    for_row_ranges(context_, y.num_rows, y.num_cols, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const float* from = y.row<float>(n);
        double sum = 0;
        for (int64_t i = 0; i < y.num_cols; ++i) {
          sum += static_cast<double>(from[i]) * static_cast<double>(from[i]);
        }
        row_sums_[static_cast<size_t>(n)] = sum;
      }
    });
    double sum = 0;
    for (const double of_row : row_sums_) sum += of_row;
    return sum;
  }

  ExecContext& context_;
  std::span<const ConstMatrix> weights_;
  ConstMatrix x_;
  const FakeQuantize& quantize_;
  int64_t num_outputs_ = 0;  // of all weights
  HostBuffer changed_;       // [N, K]
  HostBuffer outputs_;       // [N, rows of x]
  std::vector<double> row_sums_;
};

/// The factor within its limits, whatever the weights hold: infinite ones give 1.
float bounded_factor(double factor) {
  if (!(factor > 0)) return 1.0f;
  return static_cast<float>(std::clamp(factor, kFactorMin, kFactorMax));
}

}  // namespace

AwqScales search_awq_scales(ExecContext& context, std::span<const ConstMatrix> weights,
                            const InputStats& stats, const FakeQuantize& quantize,
                            std::span<const int32_t> groups) {
  check_weights(weights, stats.K);
  std::vector<double> means(stats.abs_mean.begin(), stats.abs_mean.end());
  join_groups(means, groups);
  OutputErrors errors(context, weights, stats, quantize);
  AwqScales best;
  for (int i = 0; i < kNumRatios; ++i) {
    const double ratio = static_cast<double>(i) / kNumRatios;
    std::vector<float> factors = awq_factors(means, ratio);
    const double error = errors.mean(factors);
    if (i == 0) best.error_unscaled = error;
    if (i > 0 && !(error < best.error)) continue;
    best.factors = std::move(factors);
    best.ratio = ratio;
    best.error = error;
  }
  return best;
}

std::vector<float> smooth_factors(std::span<const ConstMatrix> weights, const InputStats& stats,
                                  double alpha, std::span<const int32_t> groups) {
  check_weights(weights, stats.K);
  HALLEY_CHECK(alpha >= 0 && alpha <= 1, alpha);
  std::vector<double> of_inputs(stats.abs_max.begin(), stats.abs_max.end());
  std::vector<double> of_weights(of_inputs.size(), 0.0);
  for (const ConstMatrix& w : weights) {
    for (int64_t n = 0; n < w.num_rows; ++n) {
      const float* row = w.row<float>(n);
      for (size_t k = 0; k < of_weights.size(); ++k) {
        of_weights[k] = std::max(of_weights[k], static_cast<double>(std::abs(row[k])));
      }
    }
  }
  join_groups(of_inputs, groups);
  join_groups(of_weights, groups);
  std::vector<float> factors(of_inputs.size(), 1.0f);
  for (size_t k = 0; k < factors.size(); ++k) {
    if (of_inputs[k] == 0 || of_weights[k] == 0) continue;
    factors[k] = bounded_factor(std::pow(of_inputs[k], alpha) / std::pow(of_weights[k], 1 - alpha));
  }
  return factors;
}

std::vector<float> inverse_of(std::span<const float> factors) {
  std::vector<float> inverse(factors.size());
  std::transform(factors.begin(), factors.end(), inverse.begin(),
                 [](float factor) { return 1.0f / factor; });
  return inverse;
}

std::vector<float> key_smooth_factors(std::span<const float> key_abs_max, int64_t rotary_dim,
                                      double alpha) {
  const auto half = static_cast<size_t>(rotary_dim / 2);
  HALLEY_CHECK(rotary_dim >= 0 && rotary_dim % 2 == 0 && 2 * half <= key_abs_max.size(), rotary_dim,
               key_abs_max.size());
  HALLEY_CHECK(alpha >= 0 && alpha <= 1, alpha);
  std::vector<double> largest(key_abs_max.begin(), key_abs_max.end());
  for (size_t i = 0; i < half; ++i) {
    largest[i] = largest[i + half] = std::max(largest[i], largest[i + half]);
  }
  std::vector<float> factors(largest.size(), 1.0f);
  for (size_t i = 0; i < factors.size(); ++i) {
    if (largest[i] > 0) factors[i] = bounded_factor(std::pow(largest[i], alpha));
  }
  return factors;
}

}  // namespace halley
