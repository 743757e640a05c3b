#include "halley/client/load/arrivals.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace halley {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

std::vector<double> arrivals(const ArrivalOptions& options, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  return make_arrivals(options, random);
}

TEST(Arrivals, AnInfiniteRateSendsAllAtOnce) {
  EXPECT_THAT(arrivals({.num_requests = 3}), ElementsAre(0, 0, 0));
  EXPECT_THAT(arrivals({}), IsEmpty());
}

TEST(Arrivals, InfiniteBurstinessIsEven) {
  EXPECT_THAT(arrivals({.num_requests = 4, .request_rate = 2, .burstiness = INFINITY}),
              ElementsAre(0.5, 1, 1.5, 2));
}

TEST(Arrivals, TheLastOneIsAtNumberByRate) {
  for (const double burstiness : {0.1, 0.5, 1.0, 4.0}) {
    const auto times =
        arrivals({.num_requests = 1000, .request_rate = 8, .burstiness = burstiness});
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_GT(times.front(), 0);
    EXPECT_THAT(times.back(), DoubleEq(125));
  }
}

// The intervals of a gamma distribution with shape k vary by 1 / sqrt(k) of their mean.
TEST(Arrivals, IntervalsVaryAsTheBurstinessSays) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const auto times =
        arrivals({.num_requests = 20000, .request_rate = 1, .burstiness = burstiness});
    double last = 0, squares = 0;
    for (const double time : times) {
      squares += (time - last - 1) * (time - last - 1);
      last = time;
    }
    const double variation = std::sqrt(squares / static_cast<double>(times.size()));
    EXPECT_THAT(variation, DoubleNear(1 / std::sqrt(burstiness), 0.06)) << burstiness;
  }
}

// A Poisson process has as many arrivals in any second as the Poisson distribution says: mean and
// variance are the rate.
TEST(Arrivals, CountsOfASecondArePoisson) {
  constexpr int kRate = 5, kSeconds = 4000;
  const auto times = arrivals({.num_requests = kRate * kSeconds, .request_rate = kRate});
  std::vector<double> counts(kSeconds + 1);
  for (const double time : times) counts[static_cast<size_t>(time)] += 1;
  double squares = 0;
  for (const double count : counts) squares += (count - kRate) * (count - kRate);
  EXPECT_THAT(squares / kSeconds, DoubleNear(kRate, 0.5));
}

TEST(Arrivals, BurstsAreSentTogether) {
  const auto times =
      arrivals({.num_requests = 5, .request_rate = 10, .burstiness = INFINITY, .burst_size = 2});
  ASSERT_EQ(times.size(), 5U);
  EXPECT_EQ(times[0], times[1]);
  EXPECT_EQ(times[2], times[3]);
  EXPECT_LT(times[1], times[2]);
  EXPECT_LT(times[3], times[4]);
  EXPECT_THAT(times[4], DoubleEq(0.5));
}

TEST(Arrivals, TheSeedDecides) {
  const ArrivalOptions options{.num_requests = 10, .request_rate = 3};
  EXPECT_EQ(arrivals(options, 7), arrivals(options, 7));
  EXPECT_NE(arrivals(options, 7), arrivals(options, 8));
}

}  // namespace
}  // namespace halley
