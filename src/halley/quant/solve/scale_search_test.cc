#include "halley/quant/solve/scale_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/kernels/testing/guarded_matrix.h"
#include "halley/quant/solve/grid_rule.h"

namespace halley {
namespace {

constexpr double kLossTolerance = 1e-4;    // relative: accumulation of squares in f32
constexpr double kOutputTolerance = 1e-5;  // accumulation in f32 of values near 1

/// Inputs whose channels differ much in size.
void fill_inputs(GuardedMatrix& x, uint32_t seed) {
  x.fill_normal(seed);
  for (int64_t t = 0; t < x.num_rows(); ++t) {
    for (int64_t k = 0; k < x.num_cols(); ++k) {
      x.row(t)[k] *= std::exp2(static_cast<float>(k * 7 % 11) - 5.0f);
    }
  }
}

class ScaleSearch : public testing::Test {
 protected:
  static constexpr int64_t kTokens = 37, kInputs = 45;

  void SetUp() override {
    fill_inputs(x_, 21);
    w_.fill_normal(22);
  }

  InputStats stats(int64_t num_rows = kTokens) {
    InputStatsCollector collector(kInputs, {.num_rows = num_rows, .num_tokens_expected = kTokens});
    collector.add(context_, x_.matrix());
    return collector.finish(context_);
  }

  void quantize(Matrix w) {
    const auto rule = make_minmax_rule({.bits = 4, .group_size = 16}, {});
    const QuantizedWeight quantized = round_to_nearest(context_, w, *rule);
    for (int64_t n = 0; n < w.num_rows; ++n) {
      dequantize_row(quantized, n, {w.row<float>(n), static_cast<size_t>(w.num_cols)});
    }
  }

  AwqScales search(const InputStats& stats, std::span<const int32_t> groups = {}) {
    const ConstMatrix weights[] = {w_.matrix()};
    return search_awq_scales(
        context_, weights, stats, [&](Matrix w, std::span<const float>) { quantize(w); }, groups);
  }

  /// Mean squared difference of the outputs where the weights are quantize(w * factors) / factors.
  double loss(const std::vector<float>& factors) {
    GuardedMatrix changed = w_;
    for (int64_t n = 0; n < w_.num_rows(); ++n) {
      for (size_t k = 0; k < factors.size(); ++k) changed.row(n)[k] *= factors[k];
    }
    quantize(changed.matrix());
    double sum = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t n = 0; n < w_.num_rows(); ++n) {
        double difference = 0;
        for (size_t k = 0; k < factors.size(); ++k) {
          const double change = static_cast<double>(changed.row(n)[k]) / factors[k] - w_.row(n)[k];
          difference += change * x_.row(t)[k];
        }
        sum += difference * difference;
      }
    }
    return sum / static_cast<double>(kTokens * w_.num_rows());
  }

  ThreadPool pool_{2};
  ExecContext context_{pool_};
  GuardedMatrix x_{kTokens, kInputs}, w_{29, kInputs};
};

TEST_F(ScaleSearch, LosesLessThanWithoutFactors) {
  const AwqScales scales = search(stats());
  EXPECT_LT(scales.error, scales.error_unscaled);
  EXPECT_GT(scales.ratio, 0);
  EXPECT_NEAR(scales.error, loss(scales.factors), kLossTolerance * scales.error);
  const double unscaled = loss(std::vector<float>(kInputs, 1.0f));
  EXPECT_NEAR(scales.error_unscaled, unscaled, kLossTolerance * unscaled);
}

TEST_F(ScaleSearch, TakesTheBestOfTheGrid) {
  const InputStats inputs = stats();
  const AwqScales scales = search(inputs);
  for (int i = 0; i < 20; ++i) {
    std::vector<float> factors;
    for (const float mean : inputs.abs_mean) {
      factors.push_back(std::pow(mean, static_cast<float>(i) / 20.0f));
    }
    const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
    const float middle = std::sqrt(*low * *high);
    for (float& factor : factors) factor /= middle;
    EXPECT_LE(scales.error, loss(factors) * 1.01) << i;  // codes may flip with the last bits
  }
}

TEST_F(ScaleSearch, TreatsWeightsOfOneInputAsOne) {
  const InputStats inputs = stats();
  const AwqScales whole = search(inputs);
  const ConstMatrix w = w_.matrix();
  const ConstMatrix parts[] = {w.rows(0, 3), w.rows(3, 3), w.rows(3, 29)};
  const AwqScales scales = search_awq_scales(
      context_, parts, inputs, [&](Matrix part, std::span<const float>) { quantize(part); });
  EXPECT_EQ(scales.factors, whole.factors);
  EXPECT_NEAR(scales.error, whole.error, kLossTolerance * whole.error);
}

TEST_F(ScaleSearch, GivesOneFactorToAGroupOfChannels) {
  std::vector<int32_t> groups(kInputs);
  for (size_t k = 0; k < groups.size(); ++k) groups[k] = static_cast<int32_t>(k % 20);
  const AwqScales scales = search(stats(), groups);
  EXPECT_GT(scales.ratio, 0);
  for (size_t k = 20; k < groups.size(); ++k) {
    EXPECT_EQ(scales.factors[k], scales.factors[k % 20]) << k;
  }
  EXPECT_LE(scales.error, scales.error_unscaled);
}

TEST_F(ScaleSearch, LeavesChannelsWithoutInputsAlone) {
  for (int64_t t = 0; t < kTokens; ++t) x_.row(t)[4] = x_.row(t)[44] = 0;
  const AwqScales scales = search(stats());
  EXPECT_GT(scales.ratio, 0);
  EXPECT_EQ(scales.factors[4], 1.0f);
  EXPECT_EQ(scales.factors[44], 1.0f);
  const auto [low, high] = std::minmax_element(scales.factors.begin(), scales.factors.end());
  EXPECT_NEAR(*low * *high, 1.0, 1e-6);  // the others are scaled as if it were not there
}

TEST_F(ScaleSearch, IsNotLedByAChannelThatIsAlmostAlwaysZero) {
  for (int64_t t = 0; t < kTokens; ++t) x_.row(t)[4] = 1e-30f;
  const AwqScales scales = search(stats());
  EXPECT_GT(scales.ratio, 0);
  for (const float factor : scales.factors) {
    EXPECT_GT(factor, 1e-3f);
    EXPECT_LT(factor, 1e3f);
  }
}

TEST_F(ScaleSearch, LeavesAllAloneWithoutRows) {
  const AwqScales scales = search(stats(0));
  EXPECT_EQ(scales.factors, std::vector<float>(kInputs, 1.0f));
  EXPECT_EQ(scales.error, 0);
}

TEST_F(ScaleSearch, SmoothingKeepsTheOutput) {
  const ConstMatrix weights[] = {w_.matrix()};
  const std::vector<float> factors = smooth_factors(weights, stats(), 0.5);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t n = 0; n < w_.num_rows(); ++n) {
      double y = 0, smoothed = 0, size = 0;
      for (size_t k = 0; k < factors.size(); ++k) {
        const double term = static_cast<double>(x_.row(t)[k]) * w_.row(n)[k];
        y += term;
        smoothed += static_cast<double>(x_.row(t)[k] / factors[k]) * (w_.row(n)[k] * factors[k]);
        size += std::abs(term);
      }
      ASSERT_NEAR(smoothed, y, kOutputTolerance * size);
    }
  }
}

TEST_F(ScaleSearch, SmoothingFollowsItsFormula) {
  const ConstMatrix w = w_.matrix();
  const ConstMatrix weights[] = {w.rows(0, 10), w.rows(10, 29)};
  const InputStats inputs = stats();
  for (const double alpha : {0.0, 0.05, 0.5, 0.85, 1.0}) {
    const std::vector<float> factors = smooth_factors(weights, inputs, alpha);
    ASSERT_EQ(factors.size(), size_t{kInputs});
    for (size_t k = 0; k < factors.size(); ++k) {
      float largest = 0;
      for (int64_t n = 0; n < 29; ++n) largest = std::max(largest, std::abs(w_.row(n)[k]));
      const double expected = std::pow(inputs.abs_max[k], alpha) / std::pow(largest, 1 - alpha);
      EXPECT_NEAR(factors[k], expected, 1e-6 * expected) << k;
    }
  }
}

TEST_F(ScaleSearch, SmoothingBalancesInputsAndWeights) {
  const ConstMatrix weights[] = {w_.matrix()};
  const InputStats inputs = stats();
  const std::vector<float> factors = smooth_factors(weights, inputs, 0.5);
  for (size_t k = 0; k < factors.size(); ++k) {
    float largest = 0;
    for (int64_t n = 0; n < 29; ++n) largest = std::max(largest, std::abs(w_.row(n)[k]));
    EXPECT_NEAR(inputs.abs_max[k] / factors[k], largest * factors[k], 1e-4 * largest * factors[k]);
  }
}

TEST_F(ScaleSearch, SmoothingSharesFactorsInGroups) {
  std::vector<int32_t> groups(kInputs, 3);
  for (size_t k = 30; k < groups.size(); ++k) groups[k] = 0;
  const ConstMatrix weights[] = {w_.matrix()};
  const InputStats inputs = stats();
  const std::vector<float> factors = smooth_factors(weights, inputs, 1.0, groups);
  const auto largest = [&](size_t begin, size_t end) {
    return *std::max_element(inputs.abs_max.data() + begin, inputs.abs_max.data() + end);
  };
  for (size_t k = 0; k < groups.size(); ++k) {
    EXPECT_FLOAT_EQ(factors[k], k < 30 ? largest(0, 30) : largest(30, kInputs));
  }
}

TEST(SmoothFactors, AreFiniteForAnyInput) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  InputStats stats;
  stats.K = 7;
  stats.abs_max = {0, 1, 3e38f, 1e-45f, 0, 1, 1};
  const std::vector<float> w{1, 0, 1e-45f, 3e38f, 0, infinity, nan};
  const ConstMatrix weights[] = {f32_matrix(w.data(), 1, 7)};
  EXPECT_EQ(smooth_factors(weights, stats, 0.5), (std::vector<float>{1, 1, 1e5f, 1e-5f, 1, 1, 1}));
  const std::vector<float> keys{0, 3e38f, infinity, 1e-45f, nan};
  EXPECT_EQ(key_smooth_factors(keys, 0, 0.5), (std::vector<float>{1, 1e5f, 1e5f, 1e-5f, 1}));
}

TEST(KeySmoothFactors, AreThoseOfTheLargerChannelOfAPair) {
  const std::vector<float> keys{4, 9, 0, 16, 1, 0, 25, 0};
  EXPECT_EQ(key_smooth_factors(keys, 6, 0.5), (std::vector<float>{4, 3, 1, 4, 3, 1, 5, 1}));
  EXPECT_EQ(key_smooth_factors(keys, 0, 1.0), (std::vector<float>{4, 9, 1, 16, 1, 1, 25, 1}));
}

// Rotation mixes the two channels of a pair: factors that they share pass through it.
TEST(KeySmoothFactors, KeepScoresOfRotatedQueriesAndKeys) {
  const int64_t D = 20, rotary_dim = 12;
  GuardedMatrix rows(2, D);
  rows.fill_normal(31);
  std::vector<float> largest(static_cast<size_t>(D));
  for (size_t i = 0; i < largest.size(); ++i) largest[i] = 1.0f + static_cast<float>(i * i % 13);
  const std::vector<float> factors = key_smooth_factors(largest, rotary_dim, 0.5);
  const auto rotated = [&](const std::vector<double>& row, double position) {
    std::vector<double> result = row;
    for (size_t i = 0; i < rotary_dim / 2; ++i) {
      const double angle = position / std::pow(100.0, static_cast<double>(i) / 6);
      const size_t partner = i + rotary_dim / 2;
      result[i] = row[i] * std::cos(angle) - row[partner] * std::sin(angle);
      result[partner] = row[partner] * std::cos(angle) + row[i] * std::sin(angle);
    }
    return result;
  };
  const auto score = [&](bool is_smoothed) {
    std::vector<double> q(rows.row(0), rows.row(0) + D), k(rows.row(1), rows.row(1) + D);
    for (size_t i = 0; is_smoothed && i < q.size(); ++i) {
      q[i] *= static_cast<double>(factors[i]);
      k[i] /= static_cast<double>(factors[i]);
    }
    q = rotated(q, 9);
    k = rotated(k, 5);
    double sum = 0;
    for (size_t i = 0; i < q.size(); ++i) sum += q[i] * k[i];
    return sum;
  };
  EXPECT_NEAR(score(true), score(false), 1e-9);
}

}  // namespace
}  // namespace halley
