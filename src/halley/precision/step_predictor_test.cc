#include "halley/precision/step_predictor.h"

#include <gtest/gtest.h>

namespace halley {
namespace {

constexpr double kMs = 1e-3;

double seconds_of(const StepPredictor& predictor, size_t level, int64_t num_rows, double floor) {
  return predictor.predict(level, num_rows, floor).value().seconds;
}

TEST(StepPredictor, KnowsNothingBeforeTheFirstStep) {
  EXPECT_FALSE(StepPredictor(2).predict(0, 1, kMs));
}

TEST(StepPredictor, ScalesTheRooflineWithOneMeasurement) {
  StepPredictor predictor(1);
  predictor.learn(0, 16, 2 * kMs, 3 * kMs);
  EXPECT_DOUBLE_EQ(seconds_of(predictor, 0, 16, 4 * kMs), 6 * kMs);
}

TEST(StepPredictor, KeepsSizesApart) {
  StepPredictor predictor(1);
  predictor.learn(0, 1, kMs, 2 * kMs);
  predictor.learn(0, 4096, kMs, kMs);
  EXPECT_DOUBLE_EQ(seconds_of(predictor, 0, 1, kMs), 2 * kMs);
  EXPECT_DOUBLE_EQ(seconds_of(predictor, 0, 4096, kMs), kMs);
}

TEST(StepPredictor, TakesTheNearestSizeThatWasMeasured) {
  StepPredictor predictor(1);
  predictor.learn(0, 1, kMs, 2 * kMs);
  predictor.learn(0, 4096, kMs, kMs);
  EXPECT_DOUBLE_EQ(seconds_of(predictor, 0, 8, kMs), 2 * kMs);
  EXPECT_DOUBLE_EQ(seconds_of(predictor, 0, 1024, kMs), kMs);
  EXPECT_DOUBLE_EQ(seconds_of(predictor, 0, int64_t{1} << 40, kMs), kMs);
}

TEST(StepPredictor, TakesTheRatioOfAnotherLevelUntilTheOwnIsMeasured) {
  StepPredictor predictor(2);
  predictor.learn(0, 16, 2 * kMs, 3 * kMs);
  EXPECT_DOUBLE_EQ(seconds_of(predictor, 1, 16, kMs), 1.5 * kMs);
  predictor.learn(1, 16, kMs, 1.2 * kMs);
  EXPECT_DOUBLE_EQ(seconds_of(predictor, 1, 16, kMs), 1.2 * kMs);
  EXPECT_DOUBLE_EQ(seconds_of(predictor, 0, 16, kMs), 1.5 * kMs);
}

TEST(StepPredictor, FollowsAChange) {
  StepPredictor predictor(1);
  for (int i = 0; i < 10; ++i) predictor.learn(0, 16, kMs, 2 * kMs);
  for (int i = 0; i < 60; ++i) predictor.learn(0, 16, kMs, 3 * kMs);
  EXPECT_NEAR(seconds_of(predictor, 0, 16, kMs), 3 * kMs, 0.01 * kMs);
}

TEST(StepPredictor, OneStallDecidesLittle) {
  StepPredictor predictor(1);
  for (int i = 0; i < 10; ++i) predictor.learn(0, 16, kMs, 2 * kMs);
  predictor.learn(0, 16, kMs, 5);
  EXPECT_LE(seconds_of(predictor, 0, 16, kMs), 4 * kMs);
}

TEST(StepPredictor, BoundsWhatVaries) {
  StepPredictor predictor(1);
  for (int i = 0; i < 200; ++i) predictor.learn(0, 16, kMs, (i % 2 == 0 ? 1.8 : 2.2) * kMs);
  const StepEstimate estimate = predictor.predict(0, 16, kMs).value();
  EXPECT_NEAR(estimate.seconds, 2 * kMs, 0.1 * kMs);
  EXPECT_GT(estimate.bound(), 2.2 * kMs);
  EXPECT_LT(estimate.bound(), 3 * kMs);
}

}  // namespace
}  // namespace halley
