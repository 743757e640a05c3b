#include "halley/client/load/arrivals.h"

#include <algorithm>
#include <cmath>

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

// One to eleven requests a second and back within a minute, evenly spread in the rate's own time.
constexpr ArrivalOptions kWave{
    .num_requests = 720, .request_rate = 1, .burstiness = INFINITY, .peak_rate = 11, .period = 60};

std::vector<int> counts_of(const std::vector<double>& times, size_t num_seconds) {
  std::vector<int> counts(num_seconds);
  // The last one may be due exactly at the end.
  for (const double time : times) ++counts[std::min(static_cast<size_t>(time), num_seconds - 1)];
  return counts;
}

TEST(Arrivals, AWaveStaysBetweenItsRates) {
  const auto times = arrivals(kWave);
  EXPECT_TRUE(std::ranges::is_sorted(times));
  EXPECT_THAT(times.back(), DoubleNear(120, 1e-9));  // two periods
  const auto counts = counts_of(times, 120);
  // A second of a rate r has r requests, rounded either way.
  EXPECT_THAT(counts, Each(testing::AllOf(testing::Ge(1), testing::Le(12))));
  EXPECT_EQ(counts[0], 1);
  EXPECT_GE(counts[30], 10);
  // The rate's integral over the first quarter: 6 * 15 - 5 * 60 / (2 pi) = 42.25.
  EXPECT_LT(times[41], 15);
  EXPECT_GT(times[42], 15);
  EXPECT_THAT(times[179], DoubleNear(30, 1e-9));
  EXPECT_THAT(times[359], DoubleNear(60, 1e-9));
}

// Seconds at the same place of a period are Poisson with the rate of that place.
TEST(Arrivals, AWaveOfAPoissonProcessIsOne) {
  constexpr int kPeriods = 2000, kPeriod = 4;
  ArrivalOptions options{.num_requests = int64_t{6} * kPeriods * kPeriod,
                         .request_rate = 1,
                         .peak_rate = 11,
                         .period = kPeriod};
  const auto counts = counts_of(arrivals(options), size_t{kPeriods} * kPeriod);
  // 6 -+ 10 / pi: the integral of 6 - 5 cos(pi t / 2) over [0, 1] and over [1, 2].
  const double expected[kPeriod] = {2.8169, 9.1831, 9.1831, 2.8169};
  for (size_t phase = 0; phase < kPeriod; ++phase) {
    double mean = 0, squares = 0;
    for (size_t i = phase; i < counts.size(); i += kPeriod) mean += counts[i];
    mean /= kPeriods;
    for (size_t i = phase; i < counts.size(); i += kPeriod) {
      squares += (counts[i] - mean) * (counts[i] - mean);
    }
    EXPECT_THAT(mean, DoubleNear(expected[phase], 0.3)) << phase;
    EXPECT_THAT(squares / kPeriods, DoubleNear(expected[phase], 0.12 * expected[phase])) << phase;
  }
}

TEST(Arrivals, AWaveWithoutASwingIsAConstantRate) {
  ArrivalOptions constant{.num_requests = 100, .request_rate = 5};
  ArrivalOptions wave = constant;
  wave.peak_rate = 5;
  wave.period = 7;
  const auto expected = arrivals(constant), times = arrivals(wave);
  ASSERT_EQ(times.size(), expected.size());
  for (size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(times[i], expected[i], 1e-9);
}

TEST(Arrivals, TheSeedDecidesAWave) {
  ArrivalOptions options = kWave;
  options.burstiness = 1;
  EXPECT_EQ(arrivals(options, 7), arrivals(options, 7));
  EXPECT_NE(arrivals(options, 7), arrivals(options, 8));
}

TEST(Arrivals, TheSeedDecides) {
  const ArrivalOptions options{.num_requests = 10, .request_rate = 3};
  EXPECT_EQ(arrivals(options, 7), arrivals(options, 7));
  EXPECT_NE(arrivals(options, 7), arrivals(options, 8));
}

}  // namespace
}  // namespace halley
