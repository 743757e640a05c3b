// For tests: statistics of synthetic inputs with outlier channels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "halley/quant/solve/input_stats.h"

namespace halley {

/// Normally distributed inputs; the channels of `outliers` are scaled up.
inline InputStats synthetic_stats(int64_t K, int64_t num_rows, const std::vector<int32_t>& outliers,
                                  float factor, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  InputStats stats;
  stats.K = K;
  stats.num_tokens = stats.num_rows = num_rows;
  stats.abs_max.resize(static_cast<size_t>(K));
  stats.abs_mean.resize(static_cast<size_t>(K));
  for (int64_t m = 0; m < num_rows; ++m) {
    for (int64_t k = 0; k < K; ++k) {
      const bool is_outlier = std::count(outliers.begin(), outliers.end(), k) > 0;
      const float x = normal(random) * (is_outlier ? factor : 1.0f);
      stats.rows.push_back(x);
      float& largest = stats.abs_max[static_cast<size_t>(k)];
      largest = std::max(largest, std::fabs(x));
      stats.abs_mean[static_cast<size_t>(k)] += std::fabs(x) / static_cast<float>(num_rows);
    }
  }
  return stats;
}

}  // namespace halley
