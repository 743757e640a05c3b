#include "halley/quant/solve/grid_rule.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/str.h"
#include "halley/core/float16.h"

namespace halley {
namespace {

std::vector<float> random_weights(int64_t count, uint32_t seed, float deviation = 0.05f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> weights(static_cast<size_t>(count));
  for (float& w : weights) w = normal(random);
  return weights;
}

QuantizedWeight rounded(const std::vector<float>& w, int64_t N, const GridRule& rule,
                        int num_threads = 1) {
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  const auto K = static_cast<int64_t>(w.size()) / N;
  return round_to_nearest(context, f32_matrix(w.data(), N, K), rule);
}

std::vector<float> decoded(const QuantizedWeight& weight) {
  std::vector<float> values(static_cast<size_t>(weight.N * weight.K));
  for (int64_t n = 0; n < weight.N; ++n) {
    dequantize_row(weight, n,
                   std::span(values).subspan(static_cast<size_t>(n * weight.K),
                                             static_cast<size_t>(weight.K)));
  }
  return values;
}

/// The distance of w from the nearest value of a grid with `num_codes` codes.
double least_error(const Grid& grid, int num_codes, float w) {
  double least = INFINITY;
  for (int code = 0; code < num_codes; ++code) {
    least = std::min(least, std::abs(double{w} - double{grid.scale} * (code - int{grid.zero})));
  }
  return least;
}

bool is_f16(float value) { return f16_to_f32(f32_to_f16(value)) == value; }

TEST(MinmaxRule, RoundsToTheNearestCodeOfAGridThatCoversTheWeights) {
  for (const int bits : {1, 2, 3, 4, 8}) {
    for (const bool is_symmetric : {false, true}) {
      SCOPED_TRACE(str(bits, " bits, symmetric ", is_symmetric));
      const auto rule = make_minmax_rule({bits, 7, is_symmetric}, {});
      const int num_codes = 1 << bits;
      for (uint32_t seed = 0; seed < 20; ++seed) {
        std::vector<float> weights = random_weights(7, seed);
        if (seed % 4 == 0) {  // of one sign
          for (float& w : weights) w = std::abs(w);
        }
        const Grid grid = rule->fit(0, 0, weights);
        ASSERT_TRUE(is_f16(grid.scale));
        ASSERT_LT(int{grid.zero}, num_codes);
        double low = 0, high = 0;
        for (const float w : weights) {
          low = std::min(low, double{w});
          high = std::max(high, double{w});
        }
        const double range = is_symmetric ? 2 * std::max(-low, high) : high - low;
        EXPECT_NEAR(grid.scale, range / (num_codes - 1), range * 0x1p-11);
        if (is_symmetric) {
          EXPECT_EQ(grid.zero, num_codes / 2);
        }
        for (const float w : weights) {
          const int code = rule->round(grid, w);
          ASSERT_LT(code, num_codes);
          const double error = std::abs(double{w} - double{grid.scale} * (code - int{grid.zero}));
          EXPECT_LE(error, least_error(grid, num_codes, w) + 1e-6 * range);
          // Rounding the zero may cost half a step at the ends, and rounding the scale 2^-11 of the
          // range.
          const double slack = num_codes * 0x1p-11 + 0.01;
          EXPECT_LE(error, double{grid.scale} * ((is_symmetric ? 0.5 : 1.0) + slack));
        }
      }
    }
  }
}

TEST(MinmaxRule, BreaksTiesToEvenAndKeepsWithinTheCodes) {
  const auto rule = make_minmax_rule({.bits = 4, .group_size = 8}, {});
  const Grid grid = {.scale = 0.5f, .zero = 8};
  EXPECT_EQ(rule->round(grid, 0.25f), 8);
  EXPECT_EQ(rule->round(grid, 0.75f), 10);
  EXPECT_EQ(rule->round(grid, -0.75f), 6);
  EXPECT_EQ(rule->round(grid, 1e30f), 15);
  EXPECT_EQ(rule->round(grid, -1e30f), 0);
  EXPECT_EQ(rule->round(grid, INFINITY), 15);
  EXPECT_LT(rule->round(grid, NAN), 16);
}

TEST(MinmaxRule, DecodesAGroupOfZerosToZeros) {
  for (const bool is_symmetric : {false, true}) {
    const auto rule = make_minmax_rule({4, 4, is_symmetric}, {});
    const QuantizedWeight weight = rounded(std::vector<float>(12), 2, *rule);
    EXPECT_EQ(decoded(weight), std::vector<float>(12));
    for (const float scale : weight.scales) EXPECT_GT(scale, 0.0f);
  }
}

TEST(MinmaxRule, KeepsScalesThatF16Has) {
  const auto rule = make_minmax_rule({4, 4, false}, {});
  EXPECT_EQ(rule->fit(0, 0, std::vector<float>{1e-20f, 0.0f}).scale, 0x1p-24f);
  EXPECT_EQ(rule->fit(0, 0, std::vector<float>{1e30f, -1e30f}).scale, 65504.0f);
}

TEST(MinmaxRule, ShrinksEachGroupByItsRatio) {
  const std::vector<float> weights = {-1.0f, 2.0f};
  const auto rule = make_minmax_rule({4, 2, true}, {1.0f, 0.5f, 0.25f, 0.75f}, 2);
  const float scale = 4.0f / 15.0f;
  EXPECT_EQ(rule->fit(0, 0, weights).scale, f16_to_f32(f32_to_f16(scale)));
  EXPECT_EQ(rule->fit(0, 1, weights).scale, f16_to_f32(f32_to_f16(scale * 0.5f)));
  EXPECT_EQ(rule->fit(1, 0, weights).scale, f16_to_f32(f32_to_f16(scale * 0.25f)));
  EXPECT_EQ(rule->fit(1, 1, weights).scale, f16_to_f32(f32_to_f16(scale * 0.75f)));
}

TEST(MinmaxRuleDeathTest, RejectsRatiosOfAnotherShape) {
  const auto rule = make_minmax_rule({4, 2, true}, {1.0f, 0.5f, 0.25f, 0.75f}, 2);
  EXPECT_EQ(rule->start(2, 3).num_groups(), 2);
  EXPECT_DEATH(rule->start(2, 6), "num_groups");
  EXPECT_DEATH(rule->start(3, 4), "ratios");
}

/// Checks the limits that the reader of the files enforces, and w = s1 * s2 * (code - zero).
void expect_two_levels(const QuantizedWeight& weight) {
  for (int64_t n = 0; n < weight.N; ++n) {
    const float channel_scale = weight.channel_scales[static_cast<size_t>(n)];
    ASSERT_TRUE(is_f16(channel_scale) && channel_scale > 0.0f);
    for (int64_t k = 0; k < weight.K; ++k) {
      const auto group = static_cast<size_t>(n * weight.num_groups() + weight.group_of(k));
      const int factor = weight.factors[group];
      ASSERT_TRUE(1 <= factor && factor <= 127) << factor;
      ASSERT_LE(weight.zeros[group], 15);
      ASSERT_EQ(weight.scales[group], channel_scale * static_cast<float>(factor));
      const int code = weight.codes[static_cast<size_t>(n * weight.K + k)];
      const int s8 = code * factor - weight.zeros[group] * factor;
      ASSERT_TRUE(code <= 15 && -128 <= s8 && s8 <= 127) << n << " " << k << " " << s8;
    }
  }
}

TEST(ProgressiveRule, StaysWithinS8AndNearTheWeights) {
  constexpr int64_t N = 24, K = 77, kGroup = 16;
  for (uint32_t seed = 0; seed < 10; ++seed) {
    std::vector<float> w = random_weights(N * K, seed);
    for (int64_t n = 0; n < N; ++n) {  // outliers of both signs, and groups of one sign
      w[static_cast<size_t>(n * K + n)] *= static_cast<float>(1 + n);
      if (n % 3 == 0) w[static_cast<size_t>(n * K + 40)] = 0.4f;
      if (n % 3 == 1) w[static_cast<size_t>(n * K + 41)] = -0.4f;
    }
    for (int64_t k = 0; k < K; ++k) w[static_cast<size_t>(5 * K + k)] = 0.0f;
    const auto rule = make_progressive_rule(f32_matrix(w.data(), N, K), kGroup, {});
    const QuantizedWeight weight = rounded(w, N, *rule);
    expect_two_levels(weight);
    const std::vector<float> values = decoded(weight);
    for (int64_t n = 0; n < N; ++n) {
      float abs_max = 0;
      for (int64_t k = 0; k < K; ++k) {
        abs_max = std::max(abs_max, std::abs(w[static_cast<size_t>(n * K + k)]));
      }
      const float channel_scale = weight.channel_scales[static_cast<size_t>(n)];
      if (n != 5) {
        EXPECT_NEAR(channel_scale, abs_max / 119, abs_max / 119 * 0x1p-11);
      }
      for (int64_t k = 0; k < K; ++k) {
        const auto i = static_cast<size_t>(n * K + k);
        const float scale =
            weight.scales[static_cast<size_t>(n * weight.num_groups() + weight.group_of(k))];
        if (n == 5) {
          EXPECT_EQ(values[i], 0.0f);
        }
        // Within the group's range half a step; at its ends a smaller factor may cut more.
        EXPECT_LE(std::abs(values[i] - w[i]), 8.01f * scale);
      }
    }
  }
}

TEST(ProgressiveRule, HasNoMoreErrorThanTheRoundedFactor) {
  constexpr int64_t K = 32;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    // A large weight elsewhere in the row makes the factors small, where rounding them costs most.
    std::vector<float> w = random_weights(K, seed);
    w.push_back(static_cast<float>(1 + seed % 7) * 0.2f);
    const auto rule = make_progressive_rule(f32_matrix(w.data(), 1, K + 1), K, {});
    const std::span<const float> group(w.data(), K);
    const Grid grid = rule->fit(0, 0, group);
    const float s1 = grid.scale / static_cast<float>(grid.factor);
    double low = 0, high = 0;
    for (const float value : group) {
      low = std::min(low, std::nearbyint(double{value} / s1));
      high = std::max(high, std::nearbyint(double{value} / s1));
    }
    Grid usual;
    usual.factor = static_cast<uint8_t>(std::max(1.0, std::nearbyint((high - low) / 15)));
    usual.scale = s1 * static_cast<float>(usual.factor);
    usual.zero = static_cast<uint8_t>(std::min(15.0, std::nearbyint(-low / usual.factor)));
    const auto error_of = [&](const Grid& of) {
      double error = 0;
      for (const float value : group) {
        error += std::pow(least_error(of, 16, value), 2);
      }
      return error;
    };
    EXPECT_LE(error_of(grid), error_of(usual) * (1 + 1e-6)) << seed;
  }
}

TEST(ProgressiveRule, KeepsWithinS8WhatASolverMovesBeyondTheRange) {
  const std::vector<float> w = {-1.19f, 1.19f, 0.3f};
  const auto rule = make_progressive_rule(f32_matrix(w.data(), 1, 3), 3, {});
  for (int factor = 1; factor <= 127; ++factor) {
    for (int zero = 0; zero <= 15; ++zero) {
      const Grid grid = {.scale = 0.01f * static_cast<float>(factor),
                         .zero = static_cast<uint8_t>(zero),
                         .factor = static_cast<uint8_t>(factor)};
      for (const float value : {-5.0f, 5.0f}) {
        const int s8 = (int{rule->round(grid, value)} - zero) * factor;
        ASSERT_TRUE(-128 <= s8 && s8 <= 127) << factor << " " << zero << " " << value;
      }
    }
  }
  EXPECT_LE(rule->fit(0, 0, std::vector<float>{-9.0f, 9.0f, 1.0f}).factor, 16);
}

TEST(RoundToNearest, HandlesGroupsThatDoNotDivideTheRowAndAnyNumberOfThreads) {
  constexpr int64_t N = 9, K = 50;
  const std::vector<float> w = random_weights(N * K, 3);
  for (const int64_t group_size : {1, 16, 50, 128}) {
    SCOPED_TRACE(group_size);
    const auto rule = make_minmax_rule({4, group_size, false}, {});
    const QuantizedWeight one = rounded(w, N, *rule);
    EXPECT_EQ(one.group_size, std::min(group_size, K));
    EXPECT_EQ(static_cast<int64_t>(one.scales.size()), N * one.num_groups());
    const std::vector<float> values = decoded(one);
    for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(values[i], w[i], 0.03);
    const QuantizedWeight three = rounded(w, N, *rule, 3);
    EXPECT_EQ(one.codes, three.codes);
    EXPECT_EQ(one.scales, three.scales);
    EXPECT_EQ(one.zeros, three.zeros);
  }
}

}  // namespace
}  // namespace halley
