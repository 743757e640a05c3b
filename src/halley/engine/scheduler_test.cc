#include "halley/engine/scheduler.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/base/str.h"
#include "halley/engine/page_allocator.h"
#include "halley/engine/philox.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<RequestId> ids_of(const StepPlan& plan) {
  std::vector<RequestId> ids;
  for (const ScheduledSequence& scheduled : plan.sequences) ids.push_back(scheduled.id);
  return ids;
}

std::vector<int64_t> rows_of(const StepPlan& plan) {
  std::vector<int64_t> rows;
  for (const ScheduledSequence& scheduled : plan.sequences) rows.push_back(scheduled.num_rows);
  return rows;
}

StepPlan run_step(Scheduler& scheduler) {
  StepPlan plan = scheduler.schedule();
  scheduler.update(plan);
  return plan;
}

SchedulerConfig small_config() {
  return {.num_pages = 100,
          .page_tokens = 4,
          .max_model_len = 64,
          .max_num_seqs = 4,
          .max_num_batched_tokens = 8,
          .max_num_queued = 8};
}

TEST(PageAllocator, TakesAllOrNothing) {
  PageAllocator pages(3);
  std::vector<int32_t> first, second;
  EXPECT_TRUE(pages.try_take(2, first));
  EXPECT_THAT(first, ElementsAre(0, 1));
  EXPECT_FALSE(pages.try_take(2, second));
  EXPECT_THAT(second, IsEmpty());
  EXPECT_TRUE(pages.try_take(1, first));
  EXPECT_THAT(first, ElementsAre(0, 1, 2));
  pages.give_back(first);
  EXPECT_THAT(first, IsEmpty());
  EXPECT_EQ(pages.num_free(), 3);
}

TEST(PageAllocatorDeathTest, EndsTheProcessOverAPageThatIsGivenBackTwice) {
  PageAllocator pages(2);
  std::vector<int32_t> table;
  ASSERT_TRUE(pages.try_take(1, table));
  std::vector<int32_t> copy = table;
  pages.give_back(table);
  EXPECT_DEATH(pages.give_back(copy), "is_taken_");
}

TEST(Scheduler, PrefillsInChunksAndThenDecodes) {
  Scheduler scheduler(small_config());
  ASSERT_EQ(scheduler.add(1, 18, 4), Admission::kQueued);
  for (const int64_t num_rows : {8, 8, 2}) {
    const StepPlan plan = run_step(scheduler);
    EXPECT_THAT(rows_of(plan), ElementsAre(num_rows));
    EXPECT_EQ(plan.sequences[0].is_complete, num_rows == 2);
  }
  const StepPlan plan = scheduler.schedule();
  EXPECT_THAT(rows_of(plan), ElementsAre(1));
  EXPECT_EQ(plan.sequences[0].num_past, 18);
}

TEST(Scheduler, ServesDecodesBeforePrefillsAndPrefillsInOrderOfArrival) {
  Scheduler scheduler(small_config());
  ASSERT_EQ(scheduler.add(1, 2, 9), Admission::kQueued);
  run_step(scheduler);
  ASSERT_EQ(scheduler.add(2, 10, 9), Admission::kQueued);
  ASSERT_EQ(scheduler.add(3, 10, 9), Admission::kQueued);
  StepPlan plan = run_step(scheduler);
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2));
  EXPECT_THAT(rows_of(plan), ElementsAre(1, 7));
  plan = run_step(scheduler);
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2, 3));
  EXPECT_THAT(rows_of(plan), ElementsAre(1, 3, 4));
  plan = run_step(scheduler);
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2, 3));
  EXPECT_THAT(rows_of(plan), ElementsAre(1, 1, 6));
}

TEST(Scheduler, RunsAtMostMaxNumSeqs) {
  Scheduler scheduler(small_config());
  for (RequestId id = 0; id < 6; ++id) ASSERT_EQ(scheduler.add(id, 1, 9), Admission::kQueued);
  EXPECT_THAT(ids_of(run_step(scheduler)), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(scheduler.num_waiting(), 2);
  EXPECT_TRUE(scheduler.remove(1));
  EXPECT_THAT(ids_of(run_step(scheduler)), ElementsAre(0, 2, 3, 4));
}

TEST(Scheduler, PreemptsTheYoungestAndComputesItAgainInItsOldPlace) {
  SchedulerConfig config = small_config();
  config.num_pages = 4;
  Scheduler scheduler(config);
  ASSERT_EQ(scheduler.add(1, 4, 8), Admission::kQueued);
  ASSERT_EQ(scheduler.add(2, 3, 8), Admission::kQueued);
  ASSERT_EQ(scheduler.add(3, 8, 1), Admission::kQueued);  // must not overtake 2
  run_step(scheduler);
  EXPECT_EQ(scheduler.num_running(), 2);
  std::optional<StepPlan> plan;
  for (int step = 0; step < 4; ++step) plan = run_step(scheduler);
  EXPECT_THAT(plan->preempted, IsEmpty());
  EXPECT_EQ(scheduler.num_free_pages(), 0);
  plan = run_step(scheduler);  // 1 needs its third page
  EXPECT_THAT(plan->preempted, ElementsAre(2));
  EXPECT_THAT(ids_of(*plan), ElementsAre(1));
  EXPECT_TRUE(scheduler.remove(1));
  plan = run_step(scheduler);
  EXPECT_THAT(ids_of(*plan), ElementsAre(2));  // 3 tokens of the prompt and 5 of the output
  EXPECT_THAT(rows_of(*plan), ElementsAre(8));
  EXPECT_TRUE(plan->sequences[0].is_complete);
}

TEST(Scheduler, RefusesWhatCanNeverFit) {
  SchedulerConfig config = small_config();
  Scheduler by_length(config);
  EXPECT_EQ(by_length.add(1, 64, 1), Admission::kTooLong);
  EXPECT_EQ(by_length.add(1, 63, 1'000'000), Admission::kQueued);
  EXPECT_EQ(by_length.add(2, 1, INT64_MAX), Admission::kQueued);
  config.num_pages = 3;
  Scheduler by_pages(config);
  EXPECT_EQ(by_pages.add(1, 12, 2), Admission::kTooLong);
  EXPECT_EQ(by_pages.add(1, 12, 1), Admission::kQueued);  // the last token needs no place
  EXPECT_EQ(by_pages.add(2, 1, 12), Admission::kQueued);
  EXPECT_EQ(by_pages.add(3, 1, 13), Admission::kTooLong);
}

TEST(Scheduler, BoundsTheQueueOfThoseThatNeverRan) {
  SchedulerConfig config = small_config();
  config.max_num_queued = 2;
  Scheduler scheduler(config);
  EXPECT_EQ(scheduler.add(1, 1, 1), Admission::kQueued);
  EXPECT_EQ(scheduler.add(2, 1, 1), Admission::kQueued);
  EXPECT_EQ(scheduler.add(3, 1, 1), Admission::kQueueFull);
  EXPECT_TRUE(scheduler.remove(2));
  EXPECT_EQ(scheduler.add(3, 1, 1), Admission::kQueued);
  run_step(scheduler);
  EXPECT_EQ(scheduler.num_never_run(), 0);
}

TEST(Scheduler, ForgetsWhatIsRemovedBetweenScheduleAndUpdate) {
  Scheduler scheduler(small_config());
  ASSERT_EQ(scheduler.add(1, 5, 5), Admission::kQueued);
  const StepPlan plan = scheduler.schedule();
  EXPECT_TRUE(scheduler.remove(1));
  EXPECT_FALSE(scheduler.remove(1));
  scheduler.update(plan);
  EXPECT_EQ(scheduler.num_free_pages(), scheduler.num_pages());
  EXPECT_THAT(scheduler.schedule().sequences, IsEmpty());
}

// ---- Simulation: random arrivals, lengths, page budgets and cancels over a model that sees
// nothing but the pages.

int32_t next_token(const std::vector<int32_t>& tokens) {
  uint64_t hash = tokens.size();
  for (const int32_t token : tokens) hash = random_bits(hash, static_cast<uint64_t>(token));
  return static_cast<int32_t>(hash % 1000);
}

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed), config_(random_config()), scheduler_(config_) {
    slots_.assign(static_cast<size_t>(config_.num_pages * config_.page_tokens), -1);
  }

  void run() {
    const int64_t num_requests = pick(1, 30);
    int64_t num_steps_left = 20'000;  // far more than any of these needs
    while (num_requests_ < num_requests || !live_.empty()) {
      ASSERT_GT(--num_steps_left, 0) << "starvation";
      while (num_requests_ < num_requests && pick(0, 3) == 0) submit();
      if (!live_.empty() && pick(0, 40) == 0) cancel(any_live());
      step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(scheduler_.num_free_pages(), config_.num_pages);
    EXPECT_EQ(scheduler_.num_running() + scheduler_.num_waiting(), 0);
  }

  int64_t num_preemptions() const { return num_preemptions_; }
  int64_t num_finished() const { return num_finished_; }

 private:
  struct Live {
    std::vector<int32_t> tokens;
    size_t num_prompt_tokens = 0;
    size_t num_tokens_max = 0;
    std::vector<int32_t> pages;  // as of its last step; empty: it has none
  };

  int64_t pick(int64_t min, int64_t max) {
    return min + static_cast<int64_t>(random_() % static_cast<uint64_t>(max - min + 1));
  }

  SchedulerConfig random_config() {
    const int64_t max_num_seqs = pick(1, 8);
    return {.num_pages = pick(2, 30),
            .page_tokens = pick(1, 8),
            .max_model_len = pick(2, 60),
            .max_num_seqs = max_num_seqs,
            .max_num_batched_tokens = max_num_seqs + pick(0, 20),
            .max_num_queued = pick(1, 20)};
  }

  RequestId any_live() {
    return std::next(live_.begin(), pick(0, static_cast<int64_t>(live_.size()) - 1))->first;
  }

  void submit() {
    const RequestId id = static_cast<RequestId>(num_requests_++);
    const int64_t num_prompt_tokens = pick(1, 30), max_tokens = pick(1, 30);
    const Admission admission = scheduler_.add(id, num_prompt_tokens, max_tokens);
    const int64_t num_tokens_max = std::min(num_prompt_tokens + max_tokens, config_.max_model_len);
    const bool fits = num_prompt_tokens < config_.max_model_len &&
                      ceil_div(num_tokens_max - 1, config_.page_tokens) <= config_.num_pages;
    EXPECT_EQ(admission == Admission::kTooLong, !fits);
    if (admission != Admission::kQueued) return;
    Live& live = live_[id];
    for (int64_t i = 0; i < num_prompt_tokens; ++i) {
      live.tokens.push_back(static_cast<int32_t>(pick(0, 999)));
    }
    live.num_prompt_tokens = live.tokens.size();
    live.num_tokens_max = static_cast<size_t>(num_tokens_max);
  }

  void cancel(RequestId id) {
    EXPECT_TRUE(scheduler_.remove(id));
    live_.erase(id);
  }

  void step() {
    const StepPlan plan = scheduler_.schedule();
    num_preemptions_ += static_cast<int64_t>(plan.preempted.size());
    for (const RequestId id : plan.preempted) live_.at(id).pages.clear();
    check_plan(plan);
    check_pages(plan);
    if (testing::Test::HasFatalFailure()) return;
    std::vector<RequestId> ended;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      if (compute(scheduled)) ended.push_back(scheduled.id);
    }
    const bool ends_before_update = pick(0, 1) == 0;
    if (!ends_before_update) scheduler_.update(plan);
    for (const RequestId id : ended) finish(id);
    if (ends_before_update) scheduler_.update(plan);
  }

  // Oldest first, so that the first of the live that has pages must be in the plan.
  void check_plan(const StepPlan& plan) {
    ASSERT_EQ(plan.sequences.empty(), live_.empty());
    ASSERT_LE(plan.num_rows, config_.max_num_batched_tokens);
    ASSERT_LE(scheduler_.num_running(), config_.max_num_seqs);
    int64_t num_rows = 0;
    bool is_behind_decodes = false;
    std::set<RequestId> planned;
    for (const ScheduledSequence& scheduled : plan.sequences) {
      ASSERT_TRUE(planned.insert(scheduled.id).second);
      const Live& live = live_.at(scheduled.id);
      ASSERT_EQ(scheduled.is_complete, scheduled.num_past + scheduled.num_rows ==
                                           static_cast<int64_t>(live.tokens.size()));
      const bool is_decode =
          scheduled.num_past > 0 && scheduled.is_complete && scheduled.num_rows == 1;
      ASSERT_FALSE(is_decode && is_behind_decodes) << "decodes must come first";
      is_behind_decodes = !is_decode;
      num_rows += scheduled.num_rows;
    }
    ASSERT_EQ(num_rows, plan.num_rows);
    if (!live_.empty()) {
      ASSERT_TRUE(planned.contains(live_.begin()->first)) << "the oldest must advance";
    }
  }

  void check_pages(const StepPlan& plan) {
    for (const ScheduledSequence& scheduled : plan.sequences) {
      ASSERT_GE(static_cast<int64_t>(scheduled.page_table.size()) * config_.page_tokens,
                scheduled.num_past + scheduled.num_rows);
      live_.at(scheduled.id).pages.assign(scheduled.page_table.begin(), scheduled.page_table.end());
    }
    std::set<int32_t> used;
    for (const auto& [id, live] : live_) {
      for (const int32_t page : live.pages) {
        ASSERT_TRUE(page >= 0 && page < config_.num_pages) << page;
        ASSERT_TRUE(used.insert(page).second) << "page " << page << " twice";
      }
    }
    ASSERT_EQ(static_cast<int64_t>(used.size()) + scheduler_.num_free_pages(), config_.num_pages);
  }

  int32_t& slot(const ScheduledSequence& scheduled, int64_t position) {
    const int32_t page = scheduled.page_table[static_cast<size_t>(position / config_.page_tokens)];
    return slots_[static_cast<size_t>(page * config_.page_tokens + position % config_.page_tokens)];
  }

  // Returns true where the sequence has its last token.
  bool compute(const ScheduledSequence& scheduled) {
    Live& live = live_.at(scheduled.id);
    for (int64_t i = scheduled.num_past; i < scheduled.num_past + scheduled.num_rows; ++i) {
      slot(scheduled, i) = live.tokens[static_cast<size_t>(i)];
    }
    if (!scheduled.is_complete) return false;
    std::vector<int32_t> seen;
    for (int64_t i = 0; i < scheduled.num_past + scheduled.num_rows; ++i) {
      seen.push_back(slot(scheduled, i));
    }
    live.tokens.push_back(next_token(seen));
    return live.tokens.size() == live.num_tokens_max;
  }

  void finish(RequestId id) {
    const Live& live = live_.at(id);
    std::vector<int32_t> alone(
        live.tokens.begin(), live.tokens.begin() + static_cast<ptrdiff_t>(live.num_prompt_tokens));
    while (alone.size() < live.num_tokens_max) alone.push_back(next_token(alone));
    EXPECT_EQ(live.tokens, alone) << "request " << id << " depends on the batch";
    EXPECT_TRUE(scheduler_.remove(id));
    live_.erase(id);
    ++num_finished_;
  }

  std::mt19937_64 random_;
  SchedulerConfig config_;
  Scheduler scheduler_;
  std::vector<int32_t> slots_;  // [num_pages, page_tokens]: the token that was computed there
  std::map<RequestId, Live> live_;
  int64_t num_requests_ = 0, num_preemptions_ = 0, num_finished_ = 0;
};

TEST(SchedulerSimulation, EveryRequestEndsAsIfItWereAlone) {
  int64_t num_preemptions = 0, num_finished = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    Simulation simulation(seed);
    simulation.run();
    num_preemptions += simulation.num_preemptions();
    num_finished += simulation.num_finished();
    if (HasFailure()) return;
  }
  // That the simulation reaches what it is for.
  EXPECT_GT(num_preemptions, 500);
  EXPECT_GT(num_finished, 2000);
  RecordProperty("preemptions", static_cast<int>(num_preemptions));
  RecordProperty("finished", static_cast<int>(num_finished));
}

}  // namespace
}  // namespace halley
