#include "halley/quant/fmpq/s4_clip_search.h"

#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "halley/core/thread_pool.h"
#include "halley/kernels/gemm/activation_quant.h"
#include "halley/quant/fmpq/testing/synthetic_stats.h"

namespace halley {
namespace {

constexpr int64_t N = 24;
constexpr int64_t K = 300;

std::vector<float> random_weights(int64_t num_rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> w(static_cast<size_t>(num_rows * K));
  for (float& value : w) value = normal(random);
  return w;
}

BlockPlan reversed_plan(int64_t num_s8_inputs) {
  BlockPlan plan;
  for (int64_t k = K; k > 0; --k) plan.input_perm.push_back(static_cast<int32_t>(k - 1));
  plan.num_s8_inputs = num_s8_inputs;
  return plan;
}

S4Clip search(const InputStats& stats, const std::vector<float>& w, const BlockPlan& plan,
              int num_threads = 2) {
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  // In two pieces, as layers that share an input.
  const std::vector<ConstMatrix> weights = {f32_matrix(w.data(), 10, K),
                                            f32_matrix(w.data() + 10 * K, N - 10, K)};
  return search_s4_clip(context, weights, stats, plan);
}

/// The mean squared output error, in f64.
double error_of(const InputStats& stats, const std::vector<float>& w, const BlockPlan& plan,
                float clip) {
  QuantParams quant;
  quant.activation = ActivationQuant::kS4S8Block128;
  quant.input_perm = plan.input_perm;
  quant.num_s8_inputs = plan.num_s8_inputs;
  quant.s4_clip = clip;
  double sum = 0;
  std::vector<float> rounded(K);
  for (int64_t m = 0; m < stats.num_rows; ++m) {
    const std::span<const float> x(stats.rows.data() + m * K, K);
    round_activations(quant, x, rounded.data());
    for (int64_t n = 0; n < N; ++n) {
      double error = 0;
      for (size_t k = 0; k < K; ++k) {
        error += (double{rounded[k]} - double{x[k]}) * double{w[static_cast<size_t>(n) * K + k]};
      }
      sum += error * error;
    }
  }
  return sum / static_cast<double>(N * stats.num_rows);
}

TEST(S4ClipSearch, FindsTheLeastErrorOfTheGrid) {
  const std::vector<float> w = random_weights(N, 1);
  const InputStats stats = synthetic_stats(K, 40, {}, 1, 2);
  for (const int64_t num_s8 : {0, 128, 256}) {
    const BlockPlan plan = reversed_plan(num_s8);
    const S4Clip clip = search(stats, w, plan);
    EXPECT_LT(clip.ratio, 1);  // seven steps for values that are rarely large
    EXPECT_NEAR(clip.error, error_of(stats, w, plan, clip.ratio), 1e-4 * clip.error);
    EXPECT_NEAR(clip.error_unclipped, error_of(stats, w, plan, 1), 1e-4 * clip.error_unclipped);
    for (int i = 0; i < 13; ++i) {
      const auto ratio = static_cast<float>(1 - i * 0.3 / 12);
      EXPECT_GE(error_of(stats, w, plan, ratio), clip.error * (1 - 1e-4)) << ratio;
    }
  }
}

TEST(S4ClipSearch, KeepsTheWholeRangeWhereThatIsBest) {
  // Each block's values are codes times a scale: without clipping there is no error.
  InputStats stats = synthetic_stats(K, 8, {}, 1, 3);
  for (size_t i = 0; i < stats.rows.size(); ++i) {
    stats.rows[i] = static_cast<float>(static_cast<int>(i % 15) - 7);
  }
  const S4Clip clip = search(stats, random_weights(N, 4), reversed_plan(0));
  EXPECT_EQ(clip.ratio, 1);
  EXPECT_EQ(clip.error, 0);
}

TEST(S4ClipSearch, ClipsNothingWithoutRowsOr4Bits) {
  const std::vector<float> w = random_weights(N, 5);
  InputStats stats = synthetic_stats(K, 8, {}, 1, 6);
  EXPECT_EQ(search(stats, w, reversed_plan(K)).ratio, 1);
  stats.rows.clear();
  stats.num_rows = 0;
  const S4Clip clip = search(stats, w, reversed_plan(0));
  EXPECT_EQ(clip.ratio, 1);
  EXPECT_EQ(clip.error, 0);
}

TEST(S4ClipSearch, DoesNotDependOnTheThreads) {
  const std::vector<float> w = random_weights(N, 7);
  const InputStats stats = synthetic_stats(K, 33, {5, 77}, 10, 8);
  const BlockPlan plan = plan_blocks(stats, std::vector<float>(K, 1.0f));
  const S4Clip one = search(stats, w, plan, 1), three = search(stats, w, plan, 3);
  EXPECT_EQ(one.ratio, three.ratio);
  EXPECT_EQ(one.error, three.error);
}

}  // namespace
}  // namespace halley
