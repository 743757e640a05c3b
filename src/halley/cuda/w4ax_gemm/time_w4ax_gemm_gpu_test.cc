#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "halley/cuda/mixed_gemm/time_mixed_gemm.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/time_w4ax_gemm.h"

namespace halley::cuda {
namespace {

using TimeW4axGemm = HopperTest;

double early_of(const GemmTime& time) {
  return time.time.early_microseconds.value_or(time.time.microseconds);
}

TEST_F(TimeW4axGemm, TimesWithAndWithoutEarlyStarts) {
  const auto times = time_w4ax_gemm(context_, {.gemm = {.shapes = {{256, 512}}, .rows = {1, 96}}});
  ASSERT_EQ(times.size(), 2U);
  for (const GemmTime& time : times) {
    EXPECT_TRUE(time.is_chosen);
    EXPECT_GT(time.time.microseconds, 0);
    EXPECT_GT(time.time.early_microseconds.value_or(0), 0);
    EXPECT_GT(time.floor_microseconds, 0);
  }
}

/// All plans of the layers of Llama-3 beside products with one scale a token, then the lines of the
/// fastest for cuda/hopper_tile/tuned_h200.json.
TEST_F(TimeW4axGemm, ListsAllPlansOfLayers) {
  const TimeGemmOptions options = {.shapes = {}, .rows = {1, 16, 32, 64, 128, 256, 2048}};
  std::map<std::tuple<int64_t, int64_t, int64_t>, double> others, bests;
  std::map<std::tuple<int64_t, int64_t, int64_t>, GemmTime> tuned;
  for (const GemmTime& time :
       time_mixed_gemm(context_, {.gemm = options, .kinds = {MixedKind::kU4S8}})) {
    others[{time.N, time.K, time.M}] = early_of(time);
  }
  std::map<int64_t, double> chosen_logs, best_logs;
  for (const GemmTime& time : time_w4ax_gemm(context_, {.gemm = options, .has_all_tiles = true})) {
    const double microseconds = early_of(time);
    EXPECT_GT(microseconds, 0);
    const double other = others.at({time.N, time.K, time.M});
    if (time.is_chosen) chosen_logs[time.M] += std::log(microseconds / other);
    const auto [best, is_new] = bests.emplace(std::tuple(time.N, time.K, time.M), microseconds);
    best->second = std::min(best->second, microseconds);
    if (!time.tuned.empty()) {
      GemmTime& plan = tuned.try_emplace({time.N, time.K, time.M}, time).first->second;
      if (microseconds < early_of(plan)) plan = time;
    }
    std::cout << (time.is_chosen ? "time * " : "time   ") << time.N << "x" << time.K << " M "
              << time.M << ": " << microseconds << " us, of W4A8 " << microseconds / other << ", "
              << time.kernel << "\n";
  }
  for (const auto& [shape, best] : bests) {
    best_logs[std::get<2>(shape)] += std::log(best / others.at(shape));
  }
  for (const auto& [shape, time] : tuned) std::cout << "  " << time.tuned << ",\n";
  const auto count = static_cast<double>(timed_shapes(options).size());
  for (const auto& [M, logs] : chosen_logs) {
    std::cout << "M " << M << ": " << std::exp(logs / count) << " times W4A8, the best plans "
              << std::exp(best_logs.at(M) / count) << "\n";
  }
}

}  // namespace
}  // namespace halley::cuda
