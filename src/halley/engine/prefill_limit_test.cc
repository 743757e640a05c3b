#include "halley/engine/prefill_limit.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/engine/step_time_model.h"

namespace halley {
namespace {

using testing::StrEq;
using testing::ThrowsMessage;
using Kind = ItlTarget::Kind;

// ---- The target

TEST(ItlTarget, ReadsTimesAndWords) {
  const std::pair<const char*, ItlTarget> cases[] = {
      {"auto", {.kind = Kind::kAuto}},
      {"off", {.kind = Kind::kOff}},
      {"0", {.kind = Kind::kOff}},
      {"0ms", {.kind = Kind::kOff}},
      {"50ms", {.kind = Kind::kSeconds, .seconds = 0.05}},
      {"0.05", {.kind = Kind::kSeconds, .seconds = 0.05}},
      {"2s", {.kind = Kind::kSeconds, .seconds = 2}},
      {"3600", {.kind = Kind::kSeconds, .seconds = 3600}},
  };
  for (const auto& [text, target] : cases) {
    EXPECT_EQ(itl_target_from_text(text), target) << text;
    EXPECT_EQ(itl_target_from_text(text_of(target)), target) << text;
  }
}

TEST(ItlTarget, RejectsEverythingElse) {
  for (const char* text : {"", "on", "50 ms", "50us", "-1", "-1ms", "3601", "nan", "inf", "ms"}) {
    EXPECT_THROW(itl_target_from_text(text), InputError) << text;
  }
  EXPECT_THAT([] { itl_target_from_text("fast"); },
              ThrowsMessage<InputError>(
                  StrEq("itl_target: expected auto, off, or a time of at most 3600 seconds such as "
                        "50ms or 0.05s, got \"fast\"")));
}

// ---- Work

TEST(StepWork, CountsPrefillRowsAndThePositionsThatTheyAttendTo) {
  StepPlan plan;
  plan.num_decodes = 2;
  plan.sequences = {{.num_past = 500, .num_rows = 1},
                    {.num_past = 7, .num_rows = 1},
                    {.num_past = 100, .num_rows = 3},  // 101 + 102 + 103
                    {.num_past = 0, .num_rows = 2}};   // 1 + 2
  const StepWork work = work_of(plan);
  EXPECT_EQ(work.num_decodes, 2);
  EXPECT_EQ(work.num_prefill_rows, 5);
  EXPECT_EQ(work.num_prefill_positions, 309);
}

// ---- The model

StepWork chunk(int64_t num_rows, int64_t num_past) {
  return {.num_decodes = 4,
          .num_prefill_rows = num_rows,
          .num_prefill_positions = num_rows * num_past + num_rows * (num_rows + 1) / 2};
}

/// Seconds of a machine that the tests make up.
struct Machine {
  double decode = 0.010;
  double row = 0.0004;
  double position = 0.0000001;  // so that 4000 of them take as long as a row

  double seconds(const StepWork& work) const {
    return decode + row * static_cast<double>(work.num_prefill_rows) +
           position * static_cast<double>(work.num_prefill_positions);
  }
};

TEST(StepTimeModel, LearnsThePartsOfAStepsTime) {
  const Machine machine;
  StepTimeModel model;
  EXPECT_FALSE(model.has_decode_seconds());
  model.note_step({.num_decodes = 4}, machine.decode);
  EXPECT_FALSE(model.has_prefill_seconds());
  for (int64_t num_past = 0; num_past < 8000; num_past += 20) {
    model.note_step(chunk(20, num_past), machine.seconds(chunk(20, num_past)));
  }
  EXPECT_NEAR(model.decode_seconds(), machine.decode, 1e-9);
  for (const int64_t num_past : {0, 1000, 4000, 8000}) {
    const double expected = machine.seconds(chunk(20, num_past));
    EXPECT_NEAR(model.seconds(chunk(20, num_past)), expected, 0.15 * expected) << num_past;
  }
}

TEST(StepTimeModel, SolvesForTheRowsOfAStep) {
  StepTimeModel model;
  model.note_step({.num_decodes = 4}, 0.010);
  model.note_step(chunk(100, 2000), 0.110);
  for (const int64_t num_past : {0, 100, 10'000}) {
    const double num_rows = model.num_rows(0.050, num_past);
    EXPECT_NEAR(model.seconds(chunk(std::llround(num_rows), num_past)), 0.060, 0.002) << num_past;
  }
  EXPECT_EQ(model.num_rows(0, 100), 0);
}

TEST(StepTimeModel, IsHardlyMovedByOneStepThatWasHeldUp) {
  const Machine machine;
  StepTimeModel model;
  for (int i = 0; i < 100; ++i) {
    model.note_step({.num_decodes = 4}, machine.decode);
    model.note_step(chunk(20, 500), machine.seconds(chunk(20, 500)));
  }
  const double before = model.seconds(chunk(20, 500));
  model.note_step({.num_decodes = 4}, 100 * machine.decode);
  model.note_step(chunk(20, 500), 100 * before);
  EXPECT_LT(model.seconds(chunk(20, 500)), 1.5 * before);
}

TEST(StepTimeModel, NeverPredictsThatRowsTakeNoTimeOrLess) {
  StepTimeModel model;
  model.note_step({.num_decodes = 4}, 0.010);
  model.note_step(chunk(20, 500), 0.020);
  for (int i = 0; i < 100; ++i) model.note_step(chunk(20, 500), 0.001);
  EXPECT_GE(model.seconds(chunk(20, 0)), model.decode_seconds());
  EXPECT_GT(model.num_rows(0.010, 0), 0);
}

// ---- The limit

/// Steps of a machine that computes one long prompt after the other, and decodes if there are any.
class LimitedRun {
 public:
  explicit LimitedRun(const ItlTarget& target, int64_t num_decodes = 4)
      : limit_(target), num_decodes_(num_decodes) {}

  struct Step {
    double seconds = 0;
    int64_t num_rows = 0, num_past = 0;
  };
  Step step(const Machine& machine, int64_t num_rows_max = 512) {
    Step step = {.num_past = num_past_};
    step.num_rows = std::min(limit_.num_rows({.num_decodes = num_decodes_, .num_past = num_past_}),
                             num_rows_max);
    StepPlan plan;
    plan.num_decodes = num_decodes_;
    plan.sequences.resize(static_cast<size_t>(num_decodes_), {.num_rows = 1});
    if (step.num_rows > 0) {
      plan.sequences.push_back({.num_past = num_past_, .num_rows = step.num_rows});
    }
    step.seconds = machine.seconds(work_of(plan));
    limit_.note_step(work_of(plan), step.seconds);
    num_past_ = (num_past_ + step.num_rows) % 8000;
    return step;
  }
  PrefillLimit& limit() { return limit_; }

 private:
  PrefillLimit limit_;
  const int64_t num_decodes_;
  int64_t num_past_ = 0;
};

constexpr int kStepsToLearn = 20;
// Steps may take so much longer than the target while the model learns how the past counts.
constexpr double kTolerance = 1.1;

TEST(PrefillLimit, LimitsNothingWhereItIsOff) {
  PrefillLimit limit({.kind = Kind::kOff});
  EXPECT_EQ(limit.num_rows({.num_decodes = 4}), PrefillLimit::kNoLimit);
  EXPECT_EQ(limit.num_rows({.num_decodes = 0}), PrefillLimit::kNoLimit);
  EXPECT_EQ(limit.target_seconds(), 0);
  EXPECT_EQ(limit.num_rows_last(), 0);
}

TEST(PrefillLimit, MeasuresDecodesAloneFirstAndThenFromTimeToTime) {
  LimitedRun run({.kind = Kind::kAuto});
  const Machine machine;
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(run.step(machine).num_rows == 0, i % PrefillLimit::kProbeInterval == 0) << i;
  }
}

TEST(PrefillLimit, HoldsTheTargetOnMachinesOfEverySpeed) {
  for (const double scale : {0.05, 1.0, 30.0}) {
    const Machine machine = {
        .decode = 0.010 * scale, .row = 0.0004 * scale, .position = 0.0000001 * scale};
    const double target =
        std::max(ItlTarget::kAutoSecondsMin, ItlTarget::kAutoFactor * machine.decode);
    LimitedRun run({.kind = Kind::kAuto});
    double sum = 0;
    constexpr int kSteps = 2000;
    for (int i = 0; i < kSteps; ++i) {
      const LimitedRun::Step step = run.step(machine);
      if (i >= kStepsToLearn) {
        EXPECT_LE(step.seconds, kTolerance * target) << i << " " << step.num_past;
      }
      sum += step.seconds;
    }
    EXPECT_NEAR(run.limit().target_seconds(), target, 1e-6);
    EXPECT_GE(sum / kSteps, 0.85 * target);  // and makes use of it, but for the probes
  }
}

TEST(PrefillLimit, HoldsAnAbsoluteTarget) {
  const Machine machine;
  LimitedRun run({.kind = Kind::kSeconds, .seconds = 0.05});
  EXPECT_EQ(run.limit().target_seconds(), 0.05);
  for (int i = 0; i < 2000; ++i) {
    const LimitedRun::Step step = run.step(machine);
    if (i < kStepsToLearn) continue;
    EXPECT_LE(step.seconds, kTolerance * 0.05) << i << " " << step.num_past;
  }
}

TEST(PrefillLimit, LetsPrefillsAdvanceWhereTheDecodesAloneTakeLonger) {
  const Machine machine;
  LimitedRun run({.kind = Kind::kSeconds, .seconds = 0.001});
  for (int i = 0; i < 100; ++i) {
    const int64_t num_rows = run.step(machine).num_rows;
    EXPECT_TRUE(num_rows >= PrefillLimit::kRowsMin || i % PrefillLimit::kProbeInterval == 0) << i;
  }
  EXPECT_EQ(run.limit().num_rows_last(), PrefillLimit::kRowsMin);
}

TEST(PrefillLimit, FollowsAMachineThatBecomesSlower) {
  LimitedRun run({.kind = Kind::kSeconds, .seconds = 0.1});
  for (int i = 0; i < 500; ++i) run.step({});
  const Machine slower = {.decode = 0.030, .row = 0.0012, .position = 0.0000003};
  for (int i = 0; i < 500; ++i) {
    const LimitedRun::Step step = run.step(slower);
    if (i < 200) continue;
    EXPECT_LE(step.seconds, 1.2 * 0.1) << i;
  }
}

TEST(PrefillLimit, BoundsStepsWithoutDecodesByTheWaitOfWhoArrives) {
  const Machine machine = {.decode = 0.001};
  LimitedRun run({.kind = Kind::kAuto}, 0);
  double longest = 0;
  for (int i = 0; i < 500; ++i) {
    const LimitedRun::Step step = run.step(machine, 1 << 20);
    EXPECT_GE(step.num_rows, PrefillLimit::kPrefillRowsMin);
    if (i >= kStepsToLearn) longest = std::max(longest, step.seconds);
  }
  EXPECT_LE(longest, kTolerance * PrefillLimit::kPrefillSeconds);
  EXPECT_GE(longest, 0.9 * PrefillLimit::kPrefillSeconds);
  EXPECT_EQ(run.limit().target_seconds(), 0);  // which is of decodes
}

TEST(PrefillLimit, AtMostDoublesTheLargestRecentStep) {
  Machine machine;
  machine.row = machine.position = 0;  // as if rows were free
  LimitedRun run({.kind = Kind::kAuto});
  int64_t largest = PrefillLimit::kRowsMin;
  for (int i = 0; i < 20; ++i) {
    const int64_t num_rows = run.step(machine, 1 << 20).num_rows;
    EXPECT_LE(num_rows, 2 * largest);
    largest = std::max(largest, num_rows);
  }
  EXPECT_GE(largest, 10'000);
}

}  // namespace
}  // namespace halley
