#include "halley/precision/precision_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"

namespace halley {
namespace {

constexpr double kMs = 1e-3;

PrecisionPolicyConfig auto_config() {
  return {
      .mode = PrecisionMode::kAuto, .num_levels = 2, .return_margin = 0.2, .dwell_seconds = 0.25};
}

// Steps that take 30 ms in full and 20 ms in low precision, a next token due after `token_ms`.
StepOutlook outlook_at(double now, double token_ms) {
  return {.now = now,
          .start = now,
          .step = {{.seconds = 30 * kMs}, {.seconds = 20 * kMs}},
          .token_due = now + token_ms * kMs,
          .first_tokens = {},
          .prompt_token_seconds = {30e-6, 15e-6}};
}

TEST(PrecisionPolicy, NamesOfModesAreRead) {
  for (const PrecisionMode mode :
       {PrecisionMode::kFull, PrecisionMode::kLow, PrecisionMode::kAuto}) {
    EXPECT_EQ(precision_mode_from_name(name_of(mode)), mode);
  }
  EXPECT_FALSE(precision_mode_from_name("half"));
}

TEST(PrecisionPolicy, AModelInOnePrecisionHasNoOther) {
  for (const PrecisionMode mode : {PrecisionMode::kLow, PrecisionMode::kAuto}) {
    try {
      PrecisionPolicy({.mode = mode, .num_levels = 1});
      FAIL() << name_of(mode);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("expected a model with weights in two"));
    }
  }
  EXPECT_EQ(PrecisionPolicy({.num_levels = 1}).choose({}).level, 0U);
}

TEST(PrecisionPolicy, FixedModesLookAtNothing) {
  PrecisionPolicy full({.mode = PrecisionMode::kFull, .num_levels = 2});
  PrecisionPolicy low({.mode = PrecisionMode::kLow, .num_levels = 2});
  for (const double token_ms : {1.0, 1000.0}) {
    EXPECT_EQ(full.choose(outlook_at(0, token_ms)).level, 0U);
    EXPECT_EQ(low.choose(outlook_at(0, token_ms)).level, 1U);
  }
}

TEST(PrecisionPolicy, IsFullWhileNothingIsDue) {
  PrecisionPolicy policy(auto_config());
  StepOutlook outlook = outlook_at(0, 0);
  outlook.token_due = {};
  const PrecisionChoice choice = policy.choose(outlook);
  EXPECT_EQ(choice.level, 0U);
  EXPECT_EQ(choice.reason, PrecisionReason::kHolds);
}

TEST(PrecisionPolicy, IsFullBeforeAnythingIsKnown) {
  PrecisionPolicy policy(auto_config());
  const PrecisionChoice choice = policy.choose({.now = 1, .start = 1, .step = {}});
  EXPECT_EQ(choice.level, 0U);
  EXPECT_EQ(choice.reason, PrecisionReason::kUnknown);
}

TEST(PrecisionPolicy, GoesLowAtOnceWhereFullIsTooLateForATokenOfTheStep) {
  PrecisionPolicy policy(auto_config());
  EXPECT_EQ(policy.choose(outlook_at(0, 31)).level, 0U);
  const PrecisionChoice choice = policy.choose(outlook_at(0.03, 29));
  EXPECT_EQ(choice.level, 1U);
  EXPECT_EQ(choice.reason, PrecisionReason::kToken);
  EXPECT_TRUE(choice.is_switch);
}

TEST(PrecisionPolicy, CountsWhatIsInFlight) {
  PrecisionPolicy policy(auto_config());
  StepOutlook outlook = outlook_at(0, 35);
  outlook.start = 10 * kMs;
  EXPECT_EQ(policy.choose(outlook).level, 1U);
}

TEST(PrecisionPolicy, CountsTheDeviation) {
  PrecisionPolicy policy(auto_config());
  StepOutlook outlook = outlook_at(0, 35);
  outlook.step[0].deviation = 2 * kMs;
  EXPECT_EQ(policy.choose(outlook).level, 1U);
}

TEST(PrecisionPolicy, GoesLowWhereTheQueueIsTooLongForAFirstToken) {
  PrecisionPolicy policy(auto_config());
  StepOutlook outlook = outlook_at(0, 100);
  outlook.first_tokens = {{.due = 0.1, .num_tokens_ahead = 1000},
                          {.due = 0.1, .num_tokens_ahead = 5000}};
  const PrecisionChoice choice = policy.choose(outlook);  // 5000 tokens: 150 ms, or 75 ms
  EXPECT_EQ(choice.level, 1U);
  EXPECT_EQ(choice.reason, PrecisionReason::kFirstToken);
  outlook.first_tokens.pop_back();
  EXPECT_EQ(PrecisionPolicy(auto_config()).choose(outlook).level, 0U);
}

TEST(PrecisionPolicy, TakesTheFastestWhereNothingHolds) {
  PrecisionPolicy policy(auto_config());
  const PrecisionChoice choice = policy.choose(outlook_at(0, 10));
  EXPECT_EQ(choice.level, 1U);
  EXPECT_EQ(choice.reason, PrecisionReason::kOverload);
}

TEST(PrecisionPolicy, ReturnsAfterADwellAndWithAMargin) {
  PrecisionPolicy policy(auto_config());
  ASSERT_EQ(policy.choose(outlook_at(0, 25)).level, 1U);
  EXPECT_EQ(policy.choose(outlook_at(0.2, 100)).reason, PrecisionReason::kDwell);
  EXPECT_EQ(policy.choose(outlook_at(0.3, 35)).level, 1U);  // 30 ms and 20 % do not fit
  const PrecisionChoice choice = policy.choose(outlook_at(0.4, 37));
  EXPECT_EQ(choice.level, 0U);
  EXPECT_TRUE(choice.is_switch);
}

TEST(PrecisionPolicy, AReturnThatDidNotLastDoublesTheDwell) {
  PrecisionPolicy policy(auto_config());
  ASSERT_EQ(policy.choose(outlook_at(0, 25)).level, 1U);
  ASSERT_EQ(policy.choose(outlook_at(0.3, 100)).level, 0U);
  ASSERT_EQ(policy.choose(outlook_at(0.4, 25)).level, 1U);  // after 0.1 s
  EXPECT_EQ(policy.choose(outlook_at(0.7, 100)).level, 1U);
  EXPECT_EQ(policy.choose(outlook_at(0.91, 100)).level, 0U);
  ASSERT_EQ(policy.choose(outlook_at(2, 25)).level, 1U);  // that one lasted
  EXPECT_EQ(policy.choose(outlook_at(2.26, 100)).level, 0U);
}

TEST(PrecisionPolicy, OfThreeLevelsTheBestThatHolds) {
  PrecisionPolicyConfig config = auto_config();
  config.num_levels = 3;
  StepOutlook outlook = outlook_at(0, 25);
  outlook.step.push_back({.seconds = 10 * kMs});
  outlook.prompt_token_seconds.push_back(10e-6);
  EXPECT_EQ(PrecisionPolicy(config).choose(outlook).level, 1U);
  outlook.token_due = 15 * kMs;
  EXPECT_EQ(PrecisionPolicy(config).choose(outlook).level, 2U);
}

}  // namespace
}  // namespace halley
