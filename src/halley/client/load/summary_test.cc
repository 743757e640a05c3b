#include "halley/client/load/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::DoubleNear;
using testing::IsEmpty;

constexpr double kRounding = 1e-12;  // of a few operations in f64

// Expected values of NumPy 1.24: mean, median, std and percentile of the same numbers.
TEST(Summary, EqualsNumPy) {
  const Summary summary =
      summarize({3.5, 1.25, 9, 0.5, 4, 4, 12.75}, {0, 1, 25, 50, 90, 99, 99.9, 100});
  EXPECT_THAT(summary.mean, DoubleNear(5, kRounding));
  EXPECT_THAT(summary.median, DoubleNear(4, kRounding));
  EXPECT_THAT(summary.standard_deviation, DoubleNear(4.046603514059662, kRounding));
  const double expected[] = {0.5, 0.545, 2.375, 4, 10.5, 12.525, 12.7275, 12.75};
  ASSERT_EQ(summary.percentiles.size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_THAT(summary.percentiles[i].second, DoubleNear(expected[i], kRounding))
        << summary.percentiles[i].first;
  }
}

TEST(Summary, InterpolatesBetweenRanks) {
  EXPECT_THAT(percentile({4, 1, 3, 2}, 10), DoubleNear(1.3, kRounding));
  EXPECT_THAT(percentile({4, 1, 3, 2}, 50), DoubleNear(2.5, kRounding));
  EXPECT_THAT(percentile({4, 1, 3, 2}, 99), DoubleNear(3.97, kRounding));
  EXPECT_EQ(percentile({7}, 99), 7);
}

TEST(Summary, OfNothingIsZero) {
  const Summary summary = summarize({}, {99});
  EXPECT_EQ(summary.mean, 0);
  EXPECT_EQ(summary.median, 0);
  EXPECT_EQ(summary.standard_deviation, 0);
  ASSERT_EQ(summary.percentiles.size(), 1U);
  EXPECT_EQ(summary.percentiles[0].second, 0);
  EXPECT_THAT(summarize({1}, {}).percentiles, IsEmpty());
}

}  // namespace
}  // namespace halley
