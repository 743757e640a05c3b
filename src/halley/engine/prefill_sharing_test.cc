// Tests of how the scheduler shares the rows of a step among prefills.
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/checked_math.h"
#include "halley/engine/testing/test_scheduler.h"

namespace halley {
namespace {

using testing::ElementsAre;

TEST(PrefillSharing, GivesHalfInOrderOfRankAndTheRestToTheShortestFirst) {
  SchedulerConfig config = small_scheduler_config();
  config.max_num_seqs = 8;
  TestScheduler scheduler(config);
  scheduler.add(1, 40, 9);
  scheduler.add(2, 30, 9);
  scheduler.add(3, 4, 9);
  scheduler.add(4, 2, 9);
  StepPlan plan = scheduler.run_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 3, 4));  // 2 is neither
  EXPECT_THAT(rows_of(plan), ElementsAre(4, 2, 2));
  plan = scheduler.run_step();  // 4 decodes
  EXPECT_THAT(ids_of(plan), ElementsAre(4, 1, 2, 3));
  EXPECT_THAT(rows_of(plan), ElementsAre(1, 4, 1, 2));
}

TEST(PrefillSharing, PassesTheRestOfTheFirstHalfToTheNextRank) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 2, 9);
  scheduler.add(2, 20, 9);
  scheduler.add(3, 12, 9);
  const StepPlan plan = scheduler.run_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2, 3));
  EXPECT_THAT(rows_of(plan), ElementsAre(2, 2, 4));
}

TEST(PrefillSharing, ServesBetterPrioritiesFirst) {
  SchedulerConfig config = small_scheduler_config();
  config.policy = SchedulingPolicy::kPriority;
  TestScheduler scheduler(config);
  scheduler.add(1, 3, 9, 5);
  scheduler.add(2, 40, 9, 0);
  EXPECT_THAT(ids_of(scheduler.run_step()), ElementsAre(2));
}

TEST(PrefillSharing, AdmitsAShortPromptBehindALongOneThatTakesAllRows) {
  SchedulerConfig config = small_scheduler_config();
  config.max_num_batched_tokens = 4;
  TestScheduler scheduler(config);
  scheduler.add(1, 60, 2);
  scheduler.run_step();
  scheduler.add(2, 60, 2);
  scheduler.add(3, 2, 2);
  const StepPlan plan = scheduler.run_step();
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 3));
  EXPECT_TRUE(plan.sequences[1].is_complete);
  ASSERT_THAT(plan.started, testing::SizeIs(1));  // 2 has pages, and has not run
  EXPECT_EQ(plan.started[0].id, 3u);
  EXPECT_EQ(scheduler->num_running(), 2);
  EXPECT_EQ(scheduler->num_waiting(), 1);
}

TEST(PrefillSharing, NeverOvertakesTheHeadOfTheQueueForPages) {
  SchedulerConfig config = small_scheduler_config();
  config.num_pages = 16;
  TestScheduler scheduler(config);
  scheduler.add(1, 40, 2);
  scheduler.add(2, 40, 2);  // 10 pages do not fit with 10
  scheduler.add(3, 2, 2);
  EXPECT_THAT(ids_of(scheduler.run_step()), ElementsAre(1));
  EXPECT_TRUE(scheduler->page_table(3).empty());
}

TEST(PrefillSharing, KeepsToTheLimitOfItsCaller) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add(1, 1, 9);
  scheduler.run_step();
  scheduler.add(2, 40, 9);
  scheduler.add(3, 20, 9);
  std::vector<PrefillOutlook> seen;
  const auto limit_of = [&](const PrefillOutlook& outlook) {
    seen.push_back(outlook);
    return int64_t{4};
  };
  StepPlan plan = scheduler.run_step(limit_of);
  EXPECT_THAT(ids_of(plan), ElementsAre(1, 2, 3));
  EXPECT_THAT(rows_of(plan), ElementsAre(1, 2, 2));
  EXPECT_EQ(plan.num_decodes, 1);
  plan = scheduler.run_step(limit_of);
  ASSERT_THAT(seen, testing::SizeIs(2));
  EXPECT_EQ(seen[0].num_decodes, 1);
  EXPECT_EQ(seen[0].num_past, 0);
  EXPECT_EQ(seen[1].num_past, 2);
  EXPECT_THAT(ids_of(scheduler.run_step([](const auto&) { return 0; })), ElementsAre(1));
}

TEST(PrefillSharing, CountsAsDecodesThoseThatWaitForTheirChoiceToo) {
  TestScheduler scheduler(small_scheduler_config());
  scheduler.add({.id = 1, .max_tokens = 9, .is_choice_deferred = true}, {1, 2});
  scheduler.launch_step();
  scheduler.add(2, 40, 9);
  int64_t num_decodes = 0;
  const StepPlan plan = scheduler->schedule([&](const PrefillOutlook& outlook) {
    num_decodes = outlook.num_decodes;
    return int64_t{3};
  });
  EXPECT_THAT(ids_of(plan), ElementsAre(2));
  EXPECT_EQ(num_decodes, 1);
}

// Random prompts that fit: each is computed no later than when half of the rows of the steps so far
// suffice for it and all that arrived before it.
TEST(PrefillSharing, TakesAtMostTwiceTheRowsThatOrderOfArrivalTakes) {
  std::mt19937_64 random(19);
  const auto pick = [&](int64_t min, int64_t max) {
    return min + static_cast<int64_t>(random() % static_cast<uint64_t>(max - min + 1));
  };
  struct Waiting {
    int64_t num_left = 0;
    int64_t num_rows_max = 0;  // that halves of steps may have given until it is computed
  };
  TestScheduler scheduler({.num_pages = 100'000,
                           .page_tokens = 4,
                           .max_model_len = 1000,
                           .max_num_seqs = 400,
                           .max_num_batched_tokens = 400,
                           .has_prefix_caching = false});
  std::map<SequenceId, Waiting> waiting;
  int64_t num_half_rows = 0;  // of all steps
  int64_t num_done = 0;
  for (SequenceId id = 0; num_done < 2000;) {
    while (pick(0, 3) == 0 && waiting.size() < 300) {
      const int64_t num_tokens = pick(0, 9) == 0 ? pick(200, 900) : pick(2, 30);
      int64_t sum = num_tokens;
      for (const auto& [_, other] : waiting) sum += other.num_left;
      waiting[id] = {.num_left = num_tokens, .num_rows_max = num_half_rows + sum};
      scheduler.add(id++, num_tokens, 1);
    }
    const int64_t limit = pick(1, 40);
    for (const auto& [_, other] : waiting) EXPECT_LT(num_half_rows, other.num_rows_max);
    const StepPlan plan = scheduler.run_step([&](const auto&) { return limit; });
    num_half_rows += ceil_div(limit, int64_t{2});
    for (const ScheduledSequence& scheduled : plan.sequences) {
      waiting.at(scheduled.id).num_left -= scheduled.num_rows;
      if (!scheduled.is_complete) continue;
      waiting.erase(scheduled.id);
      scheduler->remove(scheduled.id);
      ++num_done;
    }
  }
}

}  // namespace
}  // namespace halley
