#include "halley/quant/solve/input_stats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/kernels/testing/guarded_matrix.h"

namespace halley {
namespace {

// Accumulation of a few hundred terms in f32.
constexpr double kGramTolerance = 1e-5;
constexpr double kRounding = 1e-7;  // of one result in f32

InputStats collect(ConstMatrix x, const StatsRequest& request, const std::vector<int64_t>& pieces,
                   int num_threads) {
  ThreadPool pool(num_threads);
  ExecContext context{pool};
  InputStatsCollector collector(x.num_cols, request);
  int64_t begin = 0;
  for (const int64_t size : pieces) {
    const int64_t end = std::min(x.num_rows, begin + size);
    collector.add(context, x.rows(begin, end));
    begin = end;
  }
  if (begin < x.num_rows) collector.add(context, x.rows(begin, x.num_rows));
  return collector.finish(context);
}

InputStats collect(ConstMatrix x, const StatsRequest& request) {
  return collect(x, request, {}, 2);
}

// One column whose value is the token's index.
std::vector<float> kept_tokens(int64_t num_tokens, int64_t num_rows, int64_t num_expected) {
  std::vector<float> x(static_cast<size_t>(num_tokens));
  for (size_t t = 0; t < x.size(); ++t) x[t] = static_cast<float>(t);
  const InputStats stats = collect(f32_matrix(x.data(), num_tokens, 1),
                                   {.num_rows = num_rows, .num_tokens_expected = num_expected});
  EXPECT_EQ(stats.num_rows, static_cast<int64_t>(stats.rows.size()));
  return stats.rows;
}

std::string message_of(std::vector<float> x, bool has_gram) {
  try {
    collect(f32_matrix(x.data(), 2, static_cast<int64_t>(x.size()) / 2), {.has_gram = has_gram});
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(InputStats, AgreeWithTheirDefinition) {
  for (const int64_t K : {1, 7, 513, 1030}) {
    const int64_t T = 300;
    GuardedMatrix x(T, K);
    x.fill_normal(static_cast<uint32_t>(K), 2.0f, 0.5f);
    const InputStats stats = collect(x.matrix(), {.has_gram = K < 600});
    EXPECT_EQ(stats.K, K);
    EXPECT_EQ(stats.num_tokens, T);
    EXPECT_TRUE(stats.rows.empty());
    for (int64_t k = 0; k < K; ++k) {
      double sum = 0, largest = 0;
      for (int64_t t = 0; t < T; ++t) {
        const double magnitude = std::abs(static_cast<double>(x.row(t)[k]));
        sum += magnitude;
        largest = std::max(largest, magnitude);
      }
      const auto index = static_cast<size_t>(k);
      EXPECT_EQ(static_cast<double>(stats.abs_max[index]), largest) << K << " " << k;
      EXPECT_NEAR(static_cast<double>(stats.abs_mean[index]), sum / T, kRounding * sum / T);
    }
    const ConstMatrix gram = stats.gram_matrix();
    ASSERT_EQ(gram.num_rows, K < 600 ? K : 0);
    for (int64_t i = 0; i < gram.num_rows; i += 5) {
      for (int64_t k = 0; k < K; ++k) {
        double sum = 0, size = 0;
        for (int64_t t = 0; t < T; ++t) {
          const double term = static_cast<double>(x.row(t)[i]) * x.row(t)[k];
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(gram.row<float>(i)[k], sum, kGramTolerance * size) << K << " " << i << " " << k;
      }
    }
  }
}

TEST(InputStats, AreTheSameBitsForAnyPiecesAndThreads) {
  const int64_t K = 67;
  GuardedMatrix x(1100, K);
  x.fill_normal(5);
  const StatsRequest request{.has_gram = true, .num_rows = 90, .num_tokens_expected = 1100};
  const InputStats whole = collect(x.matrix(), request, {}, 1);
  for (const std::vector<int64_t>& pieces :
       {std::vector<int64_t>{0, 1, 0, 511, 512}, {513, 3, 511, 1, 1}, {1099}, {200, 200, 600}}) {
    const InputStats stats = collect(x.matrix(), request, pieces, 3);
    EXPECT_EQ(stats.num_tokens, whole.num_tokens);
    EXPECT_EQ(stats.abs_max, whole.abs_max);
    EXPECT_EQ(stats.abs_mean, whole.abs_mean);
    EXPECT_EQ(stats.rows, whole.rows);
    ASSERT_EQ(stats.gram.num_bytes(), whole.gram.num_bytes());
    EXPECT_EQ(std::memcmp(stats.gram.data(), whole.gram.data(), whole.gram.num_bytes()), 0)
        << pieces.size();
  }
}

TEST(InputStats, KeepTokensAtEvenDistances) {
  EXPECT_EQ(kept_tokens(10, 5, 10), (std::vector<float>{0, 2, 4, 6, 8}));
  EXPECT_EQ(kept_tokens(11, 4, 11), (std::vector<float>{0, 2, 5, 8}));
  EXPECT_EQ(kept_tokens(10, 0, 10), std::vector<float>{});
}

TEST(InputStats, KeepAllTokensWhereFewerAreExpectedThanAskedFor) {
  EXPECT_EQ(kept_tokens(3, 5, 3), (std::vector<float>{0, 1, 2}));
  EXPECT_EQ(kept_tokens(3, 2, 0), (std::vector<float>{0, 1}));
}

TEST(InputStats, KeepWhatTheyHaveWhereMoreOrFewerTokensComeThanExpected) {
  EXPECT_EQ(kept_tokens(20, 5, 10), (std::vector<float>{0, 2, 4, 6, 8}));
  EXPECT_EQ(kept_tokens(5, 5, 10), (std::vector<float>{0, 2, 4}));
}

TEST(InputStats, AreZeroWithoutTokens) {
  const InputStats stats = collect(ConstMatrix{nullptr, DType::kF32, 0, 3, 3}, {.has_gram = true});
  EXPECT_EQ(stats.num_tokens, 0);
  EXPECT_EQ(stats.abs_mean, std::vector<float>(3, 0.0f));
  EXPECT_EQ(stats.abs_max, std::vector<float>(3, 0.0f));
  EXPECT_THAT(stats.gram.as<float>(), testing::Each(0.0f));
}

TEST(InputStats, RejectInputsThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, -nan, infinity, -infinity}) {
    for (const bool has_gram : {false, true}) {
      EXPECT_EQ(message_of({1, 2, 3, bad, 5, 6, 7, 8}, has_gram),
                "calibration: expected finite inputs of a linear layer, got infinity or NaN in "
                "channel 3 of 4. Check the model's weights and the calibration text.");
    }
  }
}

TEST(InputStats, RejectInputsWhoseSquaresOverflow) {
  EXPECT_EQ(message_of({1, 2, 3, -4e20f}, true),
            "calibration: expected inputs whose squares f32 can add up, got channel 1 of 2 with "
            "values up to 4e+20. Check the model's weights and the calibration text.");
  EXPECT_EQ(message_of({1, 2, 3, -4e20f}, false), "no error");
}

TEST(InputStats, ScaleAsTheInputsDo) {
  const int64_t T = 40, K = 19;
  GuardedMatrix x(T, K);
  x.fill_normal(8);
  const StatsRequest request{.has_gram = true, .num_rows = 7, .num_tokens_expected = T};
  InputStats stats = collect(x.matrix(), request);
  std::vector<float> factors(static_cast<size_t>(K));
  for (size_t k = 0; k < factors.size(); ++k) {
    factors[k] = std::exp2(static_cast<float>(k % 5) - 2.0f);  // so that nothing is rounded
  }
  scale_stats(stats, factors);
  for (int64_t t = 0; t < T; ++t) {
    for (size_t k = 0; k < factors.size(); ++k) x.row(t)[k] *= factors[k];
  }
  const InputStats expected = collect(x.matrix(), request);
  EXPECT_EQ(stats.abs_max, expected.abs_max);
  EXPECT_EQ(stats.abs_mean, expected.abs_mean);
  EXPECT_EQ(stats.rows, expected.rows);
  EXPECT_THAT(stats.gram.as<float>(), testing::ElementsAreArray(expected.gram.as<float>()));
}

TEST(InputStats, PermuteAsTheChannelsDo) {
  const int64_t T = 33, K = 10;
  GuardedMatrix x(T, K), moved(T, K);
  x.fill_normal(9);
  const std::vector<int32_t> perm{3, 1, 4, 0, 5, 9, 2, 6, 8, 7};
  for (int64_t t = 0; t < T; ++t) {
    for (size_t i = 0; i < perm.size(); ++i) moved.row(t)[i] = x.row(t)[perm[i]];
  }
  const StatsRequest request{.has_gram = true, .num_rows = 5, .num_tokens_expected = T};
  InputStats stats = collect(x.matrix(), request);
  permute_stats(stats, perm);
  const InputStats expected = collect(moved.matrix(), request);
  EXPECT_EQ(stats.abs_max, expected.abs_max);
  EXPECT_EQ(stats.abs_mean, expected.abs_mean);
  EXPECT_EQ(stats.rows, expected.rows);
  for (size_t i = 0; i < static_cast<size_t>(K * K); ++i) {
    EXPECT_NEAR(stats.gram.as<float>()[i], expected.gram.as<float>()[i], 1e-4) << i;
  }
}

}  // namespace
}  // namespace halley
