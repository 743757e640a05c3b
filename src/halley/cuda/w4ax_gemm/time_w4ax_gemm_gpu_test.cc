#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/hopper_tile/tuned_tiles.h"
#include "halley/cuda/mixed_gemm/time_mixed_gemm.h"
#include "halley/cuda/testing/device_matrix.h"
#include "halley/cuda/testing/gpu_test.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {
namespace {

class TimeW4axGemm : public HopperTest {
 protected:
  /// Copies of a pattern.
  static void fill(std::byte* to, size_t num_bytes, const std::vector<uint8_t>& pattern) {
    for (size_t begin = 0; begin < num_bytes; begin += pattern.size()) {
      copy_to_device(to + begin, pattern.data(), std::min(pattern.size(), num_bytes - begin));
    }
  }
  /// Random bytes.
  static std::vector<uint8_t> random_codes() {
    std::vector<uint8_t> codes((size_t{4} << 20) + 4096);
    std::mt19937 random(7);
    for (uint8_t& byte : codes) byte = static_cast<uint8_t>(random());
    return codes;
  }
  /// Blocks of inputs, one of 8 bits, then four of 4: what the tensor cores multiply sets their
  /// power.
  static std::vector<uint8_t> random_inputs() {
    std::vector<uint8_t> inputs(size_t{640} * 4096);
    std::mt19937 random(8);
    std::uniform_int_distribution<int> s8(-128, 127), s4(-8, 7);
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = static_cast<uint8_t>(i % 640 < 128 ? s8(random) : s4(random));
    }
    return inputs;
  }

  /// A line of cuda/hopper_tile/tuned_h200.json.
  static std::string tuned_line(const ProductShape& shape, const TilePlan& plan,
                                double microseconds) {
    return to_json({.family = "w4ax",
                    .N = shape.N,
                    .K = shape.K,
                    .rows = shape.M,
                    .tokens = plan.tile.tokens,
                    .deal = plan.deal,
                    .microseconds = microseconds});
  }

  /// All plans of tiles that are near.
  std::vector<TilePlan> plans_of(const ProductShape& shape) const {
    std::vector<TilePlan> plans;
    for (size_t i = 0; i < w4ax_family().tiles.size(); ++i) {
      const HopperTile& tile = w4ax_family().tiles[i].tile;
      if (tile.tokens > std::max<int64_t>(2 * shape.M, 16) || shape.M > 8 * tile.tokens) {
        if (tile.tokens < 128 || shape.M < 128) continue;
      }
      const int index = static_cast<int>(i);
      for (const TilePlan& plan : plans_of_tile(w4ax_family(), shape, device_, index)) {
        plans.push_back(plan);
      }
    }
    // Estimates are not that wrong.
    double least = plans.front().microseconds;
    for (const TilePlan& plan : plans) least = std::min(least, plan.microseconds);
    std::erase_if(plans, [&](const TilePlan& plan) { return plan.microseconds > 1.6 * least; });
    return plans;
  }
};

/// All plans of the layers of Llama-3 beside products with one scale a token, and the lines of the
/// fastest for cuda/hopper_tile/tuned_h200.json.
TEST_F(TimeW4axGemm, ListsAllTilesOfLayers) {
  constexpr int64_t kRowsMax = 2048;
  const std::vector<int64_t> rows = {1, 16, 64, 128, 256, kRowsMax};
  const std::vector<uint8_t> codes = random_codes(), inputs = random_inputs();
  CublasLtGemm lt(context_, {});
  std::vector<double> chosen_logs(rows.size()), best_logs(rows.size());
  const auto shapes = llama_gemm_shapes();
  for (const auto& [N, K] : shapes) {
    std::vector<MixedGemmTime> others = time_mixed_gemm(context_, lt,
                                                        {.shapes = {{N, K}},
                                                         .rows = rows,
                                                         .kinds = {MixedKind::kU4S8},
                                                         .has_early_starts = true,
                                                         .has_f16 = false});
    const size_t num_copies =
        std::max<size_t>(2, ceil_div<size_t>(3 * device_.l2_bytes, static_cast<size_t>(N * K / 2)));
    std::vector<W4axWeight> weights;
    for (size_t i = 0; i < num_copies; ++i) {
      weights.emplace_back(context_, N, K);
      stream_.synchronize();
      fill(weights.back().codes.data(), weights.back().codes.num_bytes(), codes);
    }
    const DeviceBuffer x(static_cast<size_t>(kRowsMax * K), "inputs to time");
    fill(x.data(), x.num_bytes(), inputs);
    const DeviceArray<float> x_scales(
        std::vector<float>(static_cast<size_t>(kRowsMax * ceil_div<int64_t>(K, 128)), 0.01f));
    const DeviceBuffer y(static_cast<size_t>(kRowsMax * N) * 2, "outputs to time");
    for (size_t m = 0; m < rows.size(); ++m) {
      const int64_t M = rows[m];
      const ProductShape shape = {.M = M, .N = N, .K = K};
      const std::string chosen = str(plan_tiles(w4ax_family(), shape, device_));
      double other = 0, best = 0;
      std::string tuned;
      for (const MixedGemmTime& time : others) {
        if (time.M == M && time.starts_early) other = time.microseconds;
      }
      for (const TilePlan& plan : plans_of(shape)) {
        const double microseconds = time_products(context_, num_copies, [&](size_t copy) {
          w4ax_gemm_planned(context_, weights[copy],
                            {.x = {x.data(), DType::kI8, M, K, K},
                             .x_scales = x_scales.data(),
                             .x_scales_pitch = kRowsMax,
                             .starts_early = true},
                            plan, {y.data(), DType::kF16, M, N, N});
        });
        EXPECT_GT(microseconds, 0);
        const bool is_chosen = chosen == str(plan);
        if (is_chosen) chosen_logs[m] += std::log(microseconds / other);
        if (best == 0 || microseconds < best) {
          best = microseconds;
          tuned = tuned_line(shape, plan, best);
        }
        std::cout << (is_chosen ? "time * " : "time   ") << N << "x" << K << " M " << M << ": "
                  << microseconds << " us, of W4A8 " << microseconds / other << ", estimate "
                  << plan.microseconds << ", " << plan << "\n";
      }
      best_logs[m] += std::log(best / other);
      std::cout << "  " << tuned << ",\n";
    }
  }
  for (size_t m = 0; m < rows.size(); ++m) {
    const auto count = static_cast<double>(shapes.size());
    std::cout << "M " << rows[m] << ": " << std::exp(chosen_logs[m] / count)
              << " times W4A8, the best plans " << std::exp(best_logs[m] / count) << "\n";
  }
}

}  // namespace
}  // namespace halley::cuda
