#include "halley/engine/scheduler.h"

#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/engine/testing/test_scheduler.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Scheduler, PrefillsInChunksAndThenDecodes) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 18, 4);
  for (const int64_t num_rows : {8, 8, 2}) {
    const StepPlan plan = scheduler.run_step();
    EXPECT_THAT(rows_of(plan), ElementsAre(num_rows));
    EXPECT_EQ(plan.sequences[0].is_complete, num_rows == 2);
  }
  const StepPlan plan = scheduler->schedule();
  EXPECT_THAT(rows_of(plan), ElementsAre(1));
  EXPECT_EQ(plan.sequences[0].num_past, 18);
}

TEST(Scheduler, ServesDecodesBeforePrefillsAndEqualPrefillsInOrderOfArrival) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 2, 9);
  scheduler.run_step();
  scheduler.add(2, 10, 9);
  scheduler.add(3, 10, 9);
  StepPlan plan = scheduler.run_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2));
  EXPECT_THAT(rows_of(plan), ElementsAre(1, 7));
  plan = scheduler.run_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2, 3));
  EXPECT_THAT(rows_of(plan), ElementsAre(1, 3, 4));
  plan = scheduler.run_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2, 3));
  EXPECT_THAT(rows_of(plan), ElementsAre(1, 1, 6));
}

TEST(Scheduler, RunsAtMostMaxNumSeqs) {
  TestScheduler scheduler(small_scheduler_config());
  for (SequenceId id = 0; id < 6; ++id) scheduler.add(id, 1, 9);
  EXPECT_THAT(ids_of(scheduler.run_step()), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(scheduler->num_waiting(), 2);
  EXPECT_TRUE(scheduler->remove(1));
  EXPECT_THAT(ids_of(scheduler.run_step()), ElementsAre(0, 2, 3, 4));
}

TEST(Scheduler, PreemptsTheYoungestAndRecomputesItAtItsRank) {
  SchedulerConfig config = small_scheduler_config();
  config.num_pages = 4;
  config.has_prefix_caching = false;  // all of it is computed again
  TestScheduler scheduler(config);
  scheduler.add(1, 4, 8);
  scheduler.add(2, 3, 8);
  scheduler.add(3, 8, 1);  // must not overtake 2
  scheduler.run_step();
  EXPECT_EQ(scheduler->num_running(), 2);
  std::optional<StepPlan> plan;
  for (int step = 0; step < 4; ++step) plan = scheduler.run_step();
  EXPECT_THAT(plan->preempted, IsEmpty());
  EXPECT_EQ(scheduler->pages().num_free(), 0);
  plan = scheduler.run_step();  // 1 needs its third page
  EXPECT_THAT(plan->preempted, ElementsAre(2));
  EXPECT_THAT(ids_of(*plan), ElementsAre(1));
  EXPECT_TRUE(scheduler->remove(1));
  plan = scheduler.run_step();
  EXPECT_THAT(ids_of(*plan), ElementsAre(2));  // 3 tokens of the prompt and 5 of the output
  EXPECT_THAT(rows_of(*plan), ElementsAre(8));
  EXPECT_TRUE(plan->sequences[0].is_complete);
}

TEST(Scheduler, KnowsWhatCanNeverFit) {
  SchedulerConfig config = small_scheduler_config();
  EXPECT_FALSE(Scheduler::can_fit(config, 64, 1));
  EXPECT_TRUE(Scheduler::can_fit(config, 63, 1'000'000));
  EXPECT_TRUE(Scheduler::can_fit(config, 1, INT64_MAX));
  config.num_pages = 3;
  EXPECT_FALSE(Scheduler::can_fit(config, 12, 2));
  EXPECT_TRUE(Scheduler::can_fit(config, 12, 1));  // the last token needs no position
  EXPECT_TRUE(Scheduler::can_fit(config, 1, 12));
  EXPECT_FALSE(Scheduler::can_fit(config, 1, 13));
}

TEST(Scheduler, ForgetsWhatIsRemovedBetweenScheduleAndLaunch) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 5, 5);
  const StepPlan plan = scheduler->schedule();
  EXPECT_TRUE(scheduler->remove(1));
  EXPECT_FALSE(scheduler->remove(1));
  scheduler->launched(plan);
  EXPECT_EQ(scheduler->pages().num_free(), scheduler->pages().num_pages());
  EXPECT_THAT(scheduler->schedule().sequences, IsEmpty());
}

// ---- Steps in flight

TEST(SchedulerInFlight, GoesOnAfterTokensThatAreNotKnownYet) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 10, 9);
  EXPECT_THAT(rows_of(scheduler.launch_step()), ElementsAre(8));
  EXPECT_THAT(rows_of(scheduler.launch_step()), ElementsAre(2));
  for (const int64_t num_past : {10, 11}) {
    const StepPlan plan = scheduler.launch_step();
    EXPECT_THAT(rows_of(plan), ElementsAre(1));
    EXPECT_EQ(plan.sequences[0].num_past, num_past);
    EXPECT_TRUE(plan.sequences[0].is_complete);
  }
}

TEST(SchedulerInFlight, LaunchesNoStepAfterTheLastTokenOfASequence) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 3, 2);
  scheduler.add(2, 3, 3);
  scheduler.launch_step();
  EXPECT_THAT(ids_of(scheduler.launch_step()), ElementsAre(1, 2));
  EXPECT_THAT(ids_of(scheduler.launch_step()), ElementsAre(2));
  EXPECT_THAT(ids_of(scheduler.launch_step()), IsEmpty());
  EXPECT_EQ(scheduler->num_running(), 2);
}

TEST(SchedulerInFlight, RunsAnotherSequenceInsteadOfOneInItsLastStep) {
  SchedulerConfig config = small_scheduler_config();
  config.max_num_seqs = 1;
  TestScheduler scheduler(config);
  scheduler.add(1, 3, 2);
  scheduler.add(2, 3, 2);
  EXPECT_FALSE(scheduler.launch_step().sequences[0].is_last);
  EXPECT_TRUE(scheduler.launch_step().sequences[0].is_last);
  EXPECT_THAT(ids_of(scheduler.launch_step()), ElementsAre(2));
  EXPECT_EQ(scheduler->num_running(), 2);
  EXPECT_EQ(scheduler->page_table(1).size(), 1u);  // its pages are its own until it is removed
}

TEST(SchedulerInFlight, LeavesOutSequencesUntilTheirChoiceIsLaunched) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add({.id = 1, .max_tokens = 3, .is_choice_deferred = true},
                {1, 2, 3, 4, 5, 6, 7, 8, 9});
  scheduler.add(2, 1, 9);
  EXPECT_THAT(ids_of(scheduler.launch_step()), ElementsAre(1, 2));
  EXPECT_THAT(ids_of(scheduler.launch_step()), ElementsAre(2, 1));  // a chunk needs no token
  EXPECT_THAT(ids_of(scheduler.launch_step()), ElementsAre(2));
  EXPECT_FALSE(scheduler->choice_launched(1));
  EXPECT_THAT(ids_of(scheduler.launch_step()), ElementsAre(1, 2));
  EXPECT_THAT(ids_of(scheduler.launch_step()), ElementsAre(2));
  EXPECT_FALSE(scheduler->choice_launched(1));
  const StepPlan plan = scheduler.launch_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2));
  EXPECT_TRUE(plan.sequences[0].is_last);
  EXPECT_TRUE(scheduler->choice_launched(1));
  EXPECT_THAT(ids_of(scheduler.launch_step()), ElementsAre(2));
}

TEST(SchedulerInFlight, ComputesTheLastRowAgainWhereAPreemptedSequenceHadNoChoice) {
  SchedulerConfig config = small_scheduler_config();
  config.policy = SchedulingPolicy::kPriority;
  config.max_num_seqs = 1;
  TestScheduler scheduler(config);
  scheduler.add({.id = 1, .max_tokens = 9, .priority = 1, .is_choice_deferred = true}, {1, 2, 3});
  scheduler.launch_step();
  scheduler.add(2, 1, 1, 0);
  EXPECT_THAT(scheduler.launch_step().preempted, ElementsAre(1));
  EXPECT_TRUE(scheduler->remove(2));
  const StepPlan plan = scheduler.launch_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1));
  EXPECT_THAT(rows_of(plan), ElementsAre(3));
  EXPECT_TRUE(plan.sequences[0].is_complete);
  EXPECT_FALSE(scheduler->choice_launched(1));
}

TEST(SchedulerInFlight, AdmitsAPreemptedSequenceOnceItsTokensAreKnown) {
  SchedulerConfig config = small_scheduler_config();
  config.policy = SchedulingPolicy::kPriority;
  config.max_num_seqs = 1;
  TestScheduler scheduler(config);
  scheduler.add(1, 3, 9, 1);
  scheduler.launch_step();
  scheduler.add(2, 1, 1, 0);
  StepPlan plan = scheduler.launch_step();
  EXPECT_THAT(plan.preempted, ElementsAre(1));
  EXPECT_THAT(ids_of(plan), ElementsAre(2));
  EXPECT_TRUE(scheduler->remove(2));
  EXPECT_THAT(ids_of(scheduler.launch_step()), IsEmpty());
  scheduler.know_token(1);
  plan = scheduler.launch_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1));
  EXPECT_THAT(rows_of(plan), ElementsAre(4));
}

TEST(SchedulerInFlight, LetsPagesBeFoundOnceTheirTokensAreKnown) {
  SchedulerConfig config = small_scheduler_config();
  config.max_num_batched_tokens = 64;
  TestScheduler scheduler(config);
  const PrefixCache& prefixes = scheduler->pages().prefixes();
  scheduler.add(1, 7, 9);
  scheduler.launch_step();
  EXPECT_EQ(prefixes.num_entries(), 1);  // a prompt is known before it is computed
  scheduler.launch_step();               // fills the second page with a token that is not
  EXPECT_EQ(prefixes.num_entries(), 1);
  scheduler.know_token(1);
  EXPECT_EQ(prefixes.num_entries(), 2);
  scheduler.know_token(1);
  EXPECT_EQ(prefixes.num_entries(), 2);
}

TEST(SchedulerInFlight, ForgetsWhatIsRemovedWhileItIsInFlight) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 5, 5);
  scheduler.launch_step();
  scheduler.launch_step();
  EXPECT_TRUE(scheduler->remove(1));
  EXPECT_EQ(scheduler->pages().num_free(), scheduler->pages().num_pages());
  scheduler.add(2, 5, 5);
  EXPECT_THAT(ids_of(scheduler.launch_step()), ElementsAre(2));
}

// ---- Priorities

SchedulerConfig priority_config() {
  SchedulerConfig config = small_scheduler_config();
  config.policy = SchedulingPolicy::kPriority;
  return config;
}

TEST(PriorityScheduler, AdmitsByPriorityAndThenByArrival) {
  SchedulerConfig config = priority_config();
  config.max_num_seqs = 1;
  TestScheduler scheduler(config);
  scheduler.add(1, 1, 2, 5);
  scheduler.add(2, 1, 2, -3);
  scheduler.add(3, 1, 2, 5);
  scheduler.add(4, 1, 2, -3);
  std::vector<SequenceId> order;
  for (int i = 0; i < 4; ++i) {
    const StepPlan plan = scheduler.run_step();
    ASSERT_THAT(plan.sequences, testing::SizeIs(1));
    order.push_back(plan.sequences[0].id);
    EXPECT_TRUE(scheduler->remove(order.back()));
  }
  EXPECT_THAT(order, ElementsAre(2, 4, 1, 3));
}

TEST(PriorityScheduler, IgnoresPrioritiesUnderFcfs) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 1, 2, 5);
  scheduler.add(2, 1, 2, -3);
  EXPECT_THAT(ids_of(scheduler.run_step()), ElementsAre(1, 2));
}

TEST(PriorityScheduler, PreemptsTheYoungestOfTheWorstPriorityForARunningSlot) {
  SchedulerConfig config = priority_config();
  config.max_num_seqs = 3;
  TestScheduler scheduler(config);
  scheduler.add(1, 1, 9, 1);
  scheduler.add(2, 1, 9, 2);
  scheduler.add(3, 1, 9, 2);
  scheduler.run_step();
  scheduler.add(4, 1, 9, 0);
  StepPlan plan = scheduler.run_step();
  EXPECT_THAT(plan.preempted, ElementsAre(3));
  EXPECT_THAT(ids_of(plan), ElementsAre(4, 1, 2));
  scheduler.add(5, 1, 9, 2);  // after 3, which waits at its rank
  EXPECT_TRUE(scheduler->remove(4));
  EXPECT_THAT(ids_of(scheduler.run_step()), ElementsAre(1, 2, 3));
}

TEST(PriorityScheduler, PreemptsAsManyAsAreNeededForPagesAndNoneOfTheSamePriority) {
  SchedulerConfig config = priority_config();
  config.num_pages = 10;
  config.max_num_batched_tokens = 32;
  TestScheduler scheduler(config);
  scheduler.add(1, 8, 9, 1);
  scheduler.add(2, 4, 9, 2);
  scheduler.add(3, 4, 9, 3);
  scheduler.run_step();        // 4 pages are used
  scheduler.add(4, 16, 1, 1);  // 4 pages, and a spare one for 1 that stays
  const StepPlan plan = scheduler.run_step();
  EXPECT_THAT(plan.preempted, ElementsAre(3));
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2, 4));
}

TEST(PriorityScheduler, PreemptsNobodyWhereItWouldNotHelp) {
  SchedulerConfig config = priority_config();
  config.num_pages = 8;
  config.max_num_batched_tokens = 32;
  TestScheduler scheduler(config);
  scheduler.add(1, 20, 2, 0);
  scheduler.add(2, 4, 9, 2);
  scheduler.run_step();
  scheduler.add(3, 16, 1, 0);  // would need 4 pages and a spare one; 1 has 5 of 8
  const StepPlan plan = scheduler.run_step();
  EXPECT_THAT(plan.preempted, IsEmpty());
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2));
}

// ---- Prefixes. Pages have 4 tokens.

std::vector<int32_t> counted(int32_t first, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

SchedulerConfig wide_config() {
  SchedulerConfig config = small_scheduler_config();
  config.max_num_batched_tokens = 64;
  return config;
}

TEST(PrefixCaching, StartsAfterTheFullPagesThatWereComputedBefore) {
  TestScheduler scheduler(wide_config());
  scheduler.add({.id = 1, .max_tokens = 1}, counted(0, 10));
  scheduler.run_step();
  scheduler->remove(1);
  EXPECT_EQ(scheduler->pages().num_cached(), 2);
  std::vector<int32_t> other = counted(0, 10);
  other.back() = 99;
  scheduler.add({.id = 2, .max_tokens = 1}, other);
  const StepPlan plan = scheduler.run_step();
  EXPECT_EQ(plan.sequences[0].num_past, 8);
  EXPECT_EQ(plan.sequences[0].num_rows, 2);
  EXPECT_TRUE(plan.sequences[0].is_complete);
  EXPECT_EQ(plan.started[0].num_cached, 8);
  EXPECT_EQ(scheduler->num_prefix_queries(), 20);
  EXPECT_EQ(scheduler->num_prefix_hits(), 8);
}

TEST(PrefixCaching, ComputesTheLastPageAgainWhereTheWholePromptIsCached) {
  TestScheduler scheduler(wide_config());
  for (SequenceId id = 1; id <= 2; ++id) {
    scheduler.add({.id = id, .max_tokens = 9}, counted(0, 8));
    const StepPlan plan = scheduler.run_step();
    EXPECT_EQ(plan.sequences.back().num_past, id == 1 ? 0 : 4);
  }
  // It refers to the cached page.
  EXPECT_EQ(scheduler->pages().prefixes().num_entries(), 2);
  EXPECT_EQ(scheduler->pages().num_pages() - scheduler->pages().num_free(), 3);  // 1 decoded
}

TEST(PrefixCaching, SharesAmongEqualSaltsAlone) {
  TestScheduler scheduler(wide_config());
  const char* const salts[] = {"a", "b", "", "a"};
  std::vector<int64_t> num_past;
  for (SequenceId id = 0; id < 4; ++id) {
    scheduler.add({.id = id, .max_tokens = 1, .cache_salt = salts[id]}, counted(0, 12));
    num_past.push_back(scheduler.run_step().sequences[0].num_past);
    scheduler->remove(id);
  }
  EXPECT_THAT(num_past, ElementsAre(0, 0, 0, 8));
}

TEST(PrefixCaching, KeepsGeneratedTokensToo) {
  TestScheduler scheduler(wide_config());
  scheduler.add(1, 3, 20);
  for (int i = 0; i < 10; ++i) scheduler.run_step();  // 3 of the prompt, 9 generated are computed
  const std::vector<int32_t> tokens = {1000, 1001, 1002, 1003, 1004, 1005, 1006,
                                       1007, 1008, 1009, 1010, 1011, 5};
  scheduler.add({.id = 2, .max_tokens = 1}, tokens);
  EXPECT_EQ(scheduler.run_step().sequences.back().num_past, 12);
}

TEST(PrefixCaching, SharesWhatARunningPrefillHasComputed) {
  SchedulerConfig config = small_scheduler_config();
  config.max_num_batched_tokens = 8;
  TestScheduler scheduler(config);
  scheduler.add({.id = 1, .max_tokens = 9}, counted(0, 15));
  scheduler.run_step();
  scheduler.add({.id = 2, .max_tokens = 9}, counted(0, 15));
  const StepPlan plan = scheduler.run_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2));
  EXPECT_EQ(plan.sequences[1].num_past, 8);
  EXPECT_EQ(plan.sequences[1].num_rows, 1);
}

TEST(PrefixCaching, SharesWhatWasComputedBetweenAdmissionAndFirstRows) {
  SchedulerConfig config = small_scheduler_config();
  config.max_num_batched_tokens = 4;
  TestScheduler scheduler(config);
  for (SequenceId id = 1; id <= 3; ++id) {
    scheduler.add({.id = id, .max_tokens = 9}, counted(0, 17));
  }
  for (int i = 0; i < 4; ++i) EXPECT_THAT(ids_of(scheduler.run_step()), ElementsAre(1));
  const StepPlan plan = scheduler.run_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2, 3));
  EXPECT_THAT(rows_of(plan), ElementsAre(1, 1, 1));
  ASSERT_THAT(plan.started, testing::SizeIs(2));
  EXPECT_EQ(plan.started[1].num_cached, 16);
  EXPECT_EQ(scheduler->num_prefix_hits(), 32);
  // Four pages are shared, and each has one of its own: the others are free again.
  EXPECT_EQ(scheduler->pages().num_free(), scheduler->pages().num_pages() - 7);
}

TEST(PrefixCaching, LetsAPreemptedSequenceGoOnWhereItsPagesAreStillThere) {
  SchedulerConfig config = wide_config();
  config.policy = SchedulingPolicy::kPriority;
  config.max_num_seqs = 1;
  TestScheduler scheduler(config);
  scheduler.add(1, 10, 9, 1);
  scheduler.run_step();
  scheduler.add(2, 1, 1, 0);
  EXPECT_THAT(scheduler.run_step().preempted, ElementsAre(1));
  scheduler->remove(2);
  const StepPlan plan = scheduler.run_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1));
  EXPECT_EQ(plan.sequences[0].num_past, 8);
  EXPECT_EQ(plan.sequences[0].num_rows, 3);
  EXPECT_EQ(scheduler->num_prefix_hits(), 0);  // counts first admissions alone
}

TEST(PrefixCaching, SkipsNoTokenOfAPromptThatIsScored) {
  TestScheduler scheduler(wide_config());
  scheduler.add({.id = 1, .max_tokens = 9}, counted(0, 12));
  scheduler.run_step();
  scheduler.add({.id = 2, .max_tokens = 1, .needs_prompt_logits = true}, counted(0, 12));
  EXPECT_EQ(scheduler.run_step().sequences.back().num_past, 0);
  EXPECT_EQ(scheduler->num_prefix_queries(), 12);
}

TEST(PrefixCaching, CanBeLeftOut) {
  SchedulerConfig config = wide_config();
  config.has_prefix_caching = false;
  TestScheduler scheduler(config);
  for (SequenceId id = 1; id <= 2; ++id) {
    scheduler.add({.id = id, .max_tokens = 1}, counted(0, 12));
    EXPECT_EQ(scheduler.run_step().sequences.back().num_past, 0);
    scheduler->remove(id);
  }
  EXPECT_EQ(scheduler->pages().num_cached(), 0);
}

TEST(Scheduler, BoundsTheRowsOfAStepThatScorePrompts) {
  SchedulerConfig config = wide_config();
  config.max_num_prompt_logits = 6;
  TestScheduler scheduler(config);
  scheduler.add({.id = 1, .max_tokens = 9, .needs_prompt_logits = true}, counted(0, 11));
  scheduler.add({.id = 2, .max_tokens = 9, .needs_prompt_logits = true}, counted(0, 4));
  EXPECT_THAT(rows_of(scheduler.run_step()), ElementsAre(6));
  EXPECT_THAT(rows_of(scheduler.run_step()), ElementsAre(5, 2));  // 4 and 2 of them
  EXPECT_THAT(rows_of(scheduler.run_step()), ElementsAre(1, 2));
}

}  // namespace
}  // namespace halley
