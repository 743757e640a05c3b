#include "halley/quant/solve/clip_search.h"

#include <cmath>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/kernels/testing/guarded_matrix.h"

namespace halley {
namespace {

// Costs are accumulated in f32: of two ratios that differ by less, either may win.
constexpr double kCostTolerance = 1e-4;

struct Case {
  int64_t N, K, group_size;
  bool is_symmetric = false;
  bool is_progressive = false;  // grids depend on the output
};

constexpr Case kCases[] = {
    {5, 37, 16},        {3, 32, 32, true}, {1, 1, 4},
    {4, 40, 100, true}, {515, 24, 8},      {531, 24, 8, false, true},
};

/// A layer with correlated inputs and weights with heavy tails.
class Layer {
 public:
  explicit Layer(const Case& shape, bool has_gram, bool has_rows = true)
      : shape_(shape), x_(kTokens, shape.K), w_(shape.N, shape.K) {
    x_.fill_normal(11);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t k = 1; k < shape.K; ++k) x_.row(t)[k] += 0.7f * x_.row(t)[k - 1];
    }
    std::mt19937 random(12);
    std::student_t_distribution<float> tails(3);
    for (int64_t n = 0; n < shape.N; ++n) {
      for (int64_t k = 0; k < shape.K; ++k) w_.row(n)[k] = tails(random);
    }
    InputStatsCollector collector(
        shape.K,
        {.has_gram = has_gram, .num_rows = has_rows ? kTokens : 0, .num_tokens_expected = kTokens});
    collector.add(context_, x_.matrix());
    stats_ = collector.finish(context_);
  }

  std::vector<float> search(const ClipOptions& options, int num_threads = 2) {
    ThreadPool pool(num_threads);
    ExecContext context{pool};
    return search_clip(
        context, w_.matrix(), stats_, shape_.group_size,
        [&](std::vector<float> clip) { return rule(std::move(clip)); }, options);
  }

  int64_t num_groups() const { return (shape_.K + shape_.group_size - 1) / shape_.group_size; }

  /// Sum over the tokens of the squared change of the group's share of the output.
  double cost(int64_t n, int64_t g, float ratio) {
    const auto made = rule(std::vector<float>(static_cast<size_t>(shape_.N * num_groups()), ratio));
    const int64_t begin = g * shape_.group_size;
    const int64_t end = std::min(shape_.K, begin + shape_.group_size);
    const float* row = w_.row(n);
    const Grid grid = made->fit(n, g, {row + begin, row + end});
    double sum = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
      double change = 0;
      for (int64_t k = begin; k < end; ++k) {
        const double rounded = static_cast<double>(grid.scale) *
                               (made->round(grid, row[k]) - static_cast<int>(grid.zero));
        change += (rounded - row[k]) * x_.row(t)[k];
      }
      sum += change * change;
    }
    return sum;
  }

 private:
  static constexpr int64_t kTokens = 50;

  std::unique_ptr<GridRule> rule(std::vector<float> clip) {
    if (shape_.is_progressive) {
      return make_progressive_rule(w_.matrix(), shape_.group_size, std::move(clip));
    }
    return make_minmax_rule(
        {.bits = 3, .group_size = shape_.group_size, .is_symmetric = shape_.is_symmetric},
        std::move(clip), num_groups());
  }

  Case shape_;
  GuardedMatrix x_, w_;
  ThreadPool pool_{2};
  ExecContext context_{pool_};
  InputStats stats_;
};

TEST(ClipSearch, FindsTheLeastOutputErrorOfEachGroup) {
  for (const Case& shape : kCases) {
    for (const bool has_gram : {false, true}) {
      Layer layer(shape, has_gram, !has_gram);
      const std::vector<float> clip = layer.search({});
      ASSERT_EQ(static_cast<int64_t>(clip.size()), shape.N * layer.num_groups());
      for (int64_t n = 0; n < shape.N; n += 6) {
        for (int64_t g = 0; g < layer.num_groups(); ++g) {
          const double cost =
              layer.cost(n, g, clip[static_cast<size_t>(n * layer.num_groups() + g)]);
          for (int step = 0; step <= 10; ++step) {
            const auto ratio = static_cast<float>(1 - step / 20.0);
            EXPECT_LE(cost, layer.cost(n, g, ratio) * (1 + kCostTolerance))
                << shape.N << "," << shape.K << " at " << n << "," << g << " ratio " << ratio;
          }
        }
      }
    }
  }
}

TEST(ClipSearch, FindsTheLeastOutputErrorOfWholeRows) {
  Layer layer({9, 50, 16}, true);
  const std::vector<float> clip = layer.search({.is_whole_row = true});
  const auto row_cost = [&](int64_t n, float ratio) {
    double sum = 0;
    for (int64_t g = 0; g < layer.num_groups(); ++g) sum += layer.cost(n, g, ratio);
    return sum;
  };
  for (int64_t n = 0; n < 9; ++n) {
    const float found = clip[static_cast<size_t>(n * layer.num_groups())];
    for (int64_t g = 0; g < layer.num_groups(); ++g) {
      EXPECT_EQ(clip[static_cast<size_t>(n * layer.num_groups() + g)], found);
    }
    for (int step = 0; step <= 10; ++step) {
      const auto ratio = static_cast<float>(1 - step / 20.0);
      EXPECT_LE(row_cost(n, found), row_cost(n, ratio) * (1 + kCostTolerance)) << n << " " << ratio;
    }
  }
}

TEST(ClipSearch, TriesTheRatiosThatItIsTold) {
  Layer layer({60, 128, 128}, true);  // so wide that halving the range pays sometimes
  const auto values = [&](const ClipOptions& options) {
    const std::vector<float> clip = layer.search(options);
    return std::set<float>(clip.begin(), clip.end());
  };
  EXPECT_THAT(values({.num_steps = 4, .ratio_min = 0.5}), testing::IsSubsetOf({1.0f, 0.75f, 0.5f}));
  EXPECT_THAT(values({.num_steps = 4, .ratio_min = 0.5}), testing::SizeIs(testing::Ge(2)));
  EXPECT_EQ(values({.num_steps = 4, .ratio_min = 0.8}), std::set<float>{1.0f});
  EXPECT_EQ(values({.num_steps = 2, .ratio_min = 0.5}), (std::set<float>{1.0f, 0.5f}));
  EXPECT_EQ(values({.num_steps = 2, .ratio_min = 0.0}), (std::set<float>{1.0f, 0.5f}));
}

TEST(ClipSearch, LeavesRangesAloneWithoutInputs) {
  Layer layer({3, 20, 8}, false, false);
  EXPECT_THAT(layer.search({}), testing::Each(1.0f));
}

TEST(ClipSearch, IsTheSameForAnyNumberOfThreads) {
  Layer layer({700, 50, 16, true}, true);
  EXPECT_EQ(layer.search({}, 1), layer.search({}, 3));
}

}  // namespace
}  // namespace halley
