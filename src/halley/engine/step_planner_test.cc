// The precision of steps by the real scheduler: what is in a step, who waits, and 1,000 seeds of a
// server under bursts.
#include "halley/engine/step_planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/engine/testing/fake_causal_lm.h"
#include "halley/engine/testing/test_scheduler.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

NewSequence pinned(SequenceId id, int64_t max_tokens) {
  return {.id = id, .max_tokens = max_tokens, .is_pinned = true};
}

TEST(StepScope, LeavesTheOthersOut) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 3, 9);
  scheduler.add(pinned(2, 9), {50, 51, 52});
  EXPECT_THAT(ids_of(scheduler.run_step()), ElementsAre(1, 2));
  scheduler.add(3, 6, 9);
  scheduler.add(pinned(4, 9), {60, 61, 62});
  const auto step = [&](StepScope scope) {
    const StepPlan plan = scheduler->schedule({}, scope);
    scheduler->launched(plan);
    for (const ScheduledSequence& scheduled : plan.sequences) {
      if (scheduled.is_complete) scheduler.know_token(scheduled.id);
    }
    return ids_of(plan);
  };
  EXPECT_THAT(step(StepScope::kUnpinned), ElementsAre(1, 3));
  EXPECT_THAT(step(StepScope::kPinned), ElementsAre(2, 4));
  EXPECT_THAT(step(StepScope::kAll), ElementsAre(1, 2, 3, 4));
}

TEST(StepScope, PinnedSequencesShareNoPagesWithOthers) {
  SchedulerConfig config = small_scheduler_config();
  config.max_num_batched_tokens = 32;
  TestScheduler scheduler(config);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  scheduler.add({.id = 1, .max_tokens = 4}, prompt);
  scheduler.run_step();
  for (SequenceId id = 2; id < 4; ++id) {  // neither a caller's salt leads to the other kind
    NewSequence added = pinned(id, 4);
    added.cache_salt = id == 2 ? "" : "u";
    scheduler.add(added, prompt);
  }
  StepPlan plan = scheduler.run_step();
  EXPECT_THAT(rows_of(plan), ElementsAre(1, 9, 9));
  scheduler.add(pinned(4, 4), prompt);
  scheduler.add({.id = 5, .max_tokens = 4}, prompt);
  plan = scheduler.run_step();
  EXPECT_EQ(plan.started[0].num_cached, 8);
}

TEST(StepOutline, HasWhatTheNextStepCouldCompute) {
  SchedulerConfig config = small_scheduler_config();
  config.num_pages = 8;
  TestScheduler scheduler(config);
  scheduler.add(1, 2, 9);
  scheduler.run_step();
  scheduler.add(pinned(2, 3), {1, 2, 3, 4, 5, 6, 7, 8, 9});
  scheduler.launch_step();  // a decode, and a part of the prompt
  scheduler.add(3, 6, 2);
  scheduler.add(4, 30, 2);  // more than there are pages for
  scheduler.add(5, 1, 2);   // behind it
  const StepOutline outline = scheduler->outline();
  ASSERT_EQ(outline.decodes.size(), 1u);
  EXPECT_EQ(outline.decodes[0].id, 1u);
  EXPECT_EQ(outline.decodes[0].num_past, 3);
  EXPECT_EQ(outline.decodes[0].num_unknown, 1);
  ASSERT_EQ(outline.prefills.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const StepOutline::Part& part = outline.prefills[i];
    EXPECT_EQ(part.id, 2 + i);
    EXPECT_EQ(part.is_pinned, i == 0);
    EXPECT_EQ(part.can_run, i < 2);
  }
  EXPECT_EQ(outline.prefills[0].num_past, 7);
  EXPECT_EQ(outline.prefills[0].num_left, 2);
  EXPECT_EQ(outline.prefills[1].num_left, 6);
}

TEST(StepPlanner, TakesAStepToBeginWhereTheOneBeforeItEnded) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 1, 20);
  StepPlanner planner(*scheduler.operator->(), {.itl_target = {.kind = ItlTarget::Kind::kAuto}},
                      {});
  const auto at = [](int64_t ms) { return TimePoint(std::chrono::milliseconds(1000 + ms)); };
  const auto launch = [&](int64_t ms) {
    const PlannedStep step = planner.plan(at(ms));
    ASSERT_EQ(step.plan.sequences.size(), 1u);
    scheduler->launched(step.plan);
    planner.note_launch(step, at(ms));
  };
  launch(0);
  planner.note_end(at(10));  // of a prefill
  launch(10);
  launch(11);  // while the one before runs
  planner.note_end(at(20));
  launch(21);
  planner.note_end(at(30));
  planner.note_end(at(40));
  EXPECT_NEAR(planner.prefill_limit().target_seconds(), ItlTarget::kAutoFactor * 0.010, 1e-9);
}

// ---- A server under bursts

constexpr double kTpot = 0.02, kTtft = 0.3;

/// Llama-3-8B on a fast GPU, in round numbers.
std::vector<PrecisionLevel> large_levels() {
  std::vector<PrecisionLevel> levels = fake_levels();
  for (PrecisionLevel& level : levels) {
    level.cost = {
        .linear_type = level.precision == Precision::kLow ? GemmType::kE4m3 : GemmType::kF16,
        .row_linear_operations = 16e9,
        .windows = {0},
        .position_bytes = 131072,
        .always_bytes = level.precision == Precision::kLow ? 8.5e9 : 16e9};
  }
  return levels;
}

class BurstServer {
 public:
  explicit BurstServer(uint64_t seed)
      : random_(seed),
        scheduler_({.num_pages = 4000 + static_cast<int64_t>(random_() % 4000),
                    .page_tokens = 16,
                    .max_model_len = 4096,
                    .max_num_seqs = 128,
                    .max_num_batched_tokens = 2048,
                    .has_prefix_caching = false},
                   {}),
        planner_(scheduler_,
                 {.itl_target = {.kind = ItlTarget::Kind::kSeconds, .seconds = 0.75 * kTpot},
                  .levels = large_levels(),
                  .mode = PrecisionMode::kAuto},
                 [this](SequenceId id) -> const PrecisionDemand& { return jobs_.at(id).demand; }),
        rate_max_(std::uniform_real_distribution<double>(1, 60)(random_)) {}

  struct Outcome {
    int64_t num_steps = 0, num_low = 0, num_pinned_steps = 0, num_switches = 0;
    double seconds = 0;
  };

  Outcome run(double seconds) {
    Outcome outcome;
    while (now_ < seconds || !jobs_.empty()) {
      while (next_arrival_ <= now_ && now_ < seconds) submit();
      if (jobs_.empty()) {
        if (next_arrival_ >= seconds) break;
        now_ = next_arrival_;
        continue;
      }
      if (!flights_.empty() && (flights_.size() == 2 || !launch(outcome))) {
        finish();
      } else if (flights_.empty()) {
        launch(outcome);
      }
      if (testing::Test::HasFatalFailure()) break;
    }
    outcome.num_switches = planner_.precision().stats().num_switches;
    outcome.seconds = now_;
    return outcome;
  }

 private:
  struct Job {
    PrecisionDemand demand;
    int64_t num_left = 0;
  };
  struct Flight {
    std::vector<SequenceId> complete;
    double end = 0;
  };

  static TimePoint at(double seconds) {
    return TimePoint(std::chrono::duration_cast<TimePoint::duration>(
        std::chrono::duration<double>(1000 + seconds)));
  }

  void submit() {
    const SequenceId id = next_id_++;
    const PrecisionMode mode = random_() % 4 == 0 ? PrecisionMode::kFull : PrecisionMode::kAuto;
    Job job = {.demand = {.mode = mode,
                          .slo = {.ttft = kTtft, .tpot = kTpot},
                          .submitted = at(next_arrival_)},
               .num_left = 1 + static_cast<int64_t>(random_() % 60)};
    scheduler_.add({.id = id,
                    .num_prompt_tokens = 1 + static_cast<int64_t>(random_() % 2000),
                    .max_tokens = job.num_left,
                    .is_pinned = mode == PrecisionMode::kFull});
    jobs_.emplace(id, job);
    const double phase = std::sin(M_PI * std::fmod(next_arrival_, 2.0) / 2);
    next_arrival_ +=
        std::exponential_distribution<double>(1 + (rate_max_ - 1) * phase * phase)(random_);
  }

  bool launch(Outcome& outcome) {
    const PlannedStep step = planner_.plan(at(now_));
    if (step.plan.sequences.empty()) return false;
    Flight flight;
    std::vector<SequenceStep> sequences;
    bool has_pinned = false;
    for (const ScheduledSequence& scheduled : step.plan.sequences) {
      sequences.push_back({.num_past = scheduled.num_past, .num_new = scheduled.num_rows});
      has_pinned = has_pinned || jobs_.at(scheduled.id).demand.mode == PrecisionMode::kFull;
      if (scheduled.is_complete) flight.complete.push_back(scheduled.id);
    }
    [&] { ASSERT_FALSE(has_pinned && step.decision.level > 0) << "a pinned one in a low step"; }();
    ++outcome.num_steps;
    outcome.num_low += step.decision.level > 0 ? 1 : 0;
    outcome.num_pinned_steps += step.decision.scope == StepScope::kPinned ? 1 : 0;
    const DecoderCost cost = large_levels().at(step.decision.level).cost;
    const double floor = floor_seconds(step_cost(cost, sequences, 1), cost.linear_type, kH200Rates);
    const double noise = std::exp(std::normal_distribution<double>(0, 0.03)(random_));
    const double begin = std::max(now_, flights_.empty() ? now_ : flights_.back().end);
    flight.end = begin + 1.4 * noise * floor;
    scheduler_.launched(step.plan);
    planner_.note_launch(step, at(now_));
    flights_.push_back(std::move(flight));
    return true;
  }

  void finish() {
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    now_ = std::max(now_, flight.end);
    planner_.note_end(at(now_));
    for (const SequenceId id : flight.complete) {
      const auto it = jobs_.find(id);
      if (it == jobs_.end()) continue;
      it->second.demand.note_token(at(now_));
      if (--it->second.num_left > 0) {
        scheduler_.note_token(id);
        continue;
      }
      scheduler_.remove(id);
      jobs_.erase(it);
    }
  }

  std::mt19937_64 random_;
  std::map<SequenceId, Job> jobs_;
  Scheduler scheduler_;
  StepPlanner planner_;
  double rate_max_;
  std::deque<Flight> flights_;
  SequenceId next_id_ = 1;
  double now_ = 0, next_arrival_ = 0;
};

TEST(StepPlannerSimulation, KeepsPinnedSequencesFullAndLosesNothing) {
  int64_t num_mixed = 0, num_pinned_steps = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    const BurstServer::Outcome outcome = BurstServer(seed).run(2);
    ASSERT_FALSE(HasFatalFailure());
    num_mixed += outcome.num_low > 0 && outcome.num_low < outcome.num_steps ? 1 : 0;
    num_pinned_steps += outcome.num_pinned_steps;
    // At most a return in each dwell, a switch down for each, and those where only one kind was
    // left.
    const double dwell = PrecisionPolicyConfig{}.dwell_seconds;
    ASSERT_LE(static_cast<double>(outcome.num_switches), 4 * (outcome.seconds / dwell + 1));
  }
  EXPECT_GT(num_mixed, 300);
  EXPECT_GT(num_pinned_steps, 1000);
}

}  // namespace
}  // namespace halley
