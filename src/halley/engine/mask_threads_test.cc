// Tests of the work on masks: its states, its turns, its threads.
#include "halley/engine/mask_threads.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/engine/testing/engine_fixture.h"

namespace halley {
namespace {

using testing::ElementsAre;

std::shared_ptr<MaskJob> job_of(const std::shared_ptr<const CompiledConstraint>& compiled) {
  return std::make_shared<MaskJob>(compiled);
}

int32_t id_of(const char* piece) { return *fake_tokenizer()->id_of(piece); }

void run_to_end(MaskJob& job) {
  while (!job.run(1)) {
  }
}

// ---- MaskJob

TEST(MaskJob, MakesTheMaskInSlicesAndFindsItAtOnceLater) {
  const auto compiled = fake_constraint("^a[bc]$");
  const auto first = job_of(compiled);
  EXPECT_FALSE(first->begin(std::nullopt, true));
  EXPECT_FALSE(first->is_done());
  run_to_end(*first);
  ASSERT_TRUE(first->is_done());
  EXPECT_EQ(first->state(), OutputState::kOpen);
  EXPECT_TRUE(has_token(first->allowed(), static_cast<size_t>(id_of("a"))));
  EXPECT_FALSE(has_token(first->allowed(), static_cast<size_t>(id_of("b"))));

  const auto second = job_of(compiled);
  EXPECT_TRUE(second->begin(std::nullopt, true));
  EXPECT_TRUE(second->is_done());
  EXPECT_EQ(second->allowed(), first->allowed());
}

TEST(MaskJob, SaysWhereTheOutputStands) {
  const auto job = job_of(fake_constraint("^ab$"));
  if (!job->begin(std::nullopt, true)) run_to_end(*job);
  if (!job->begin(id_of("a"), true)) run_to_end(*job);
  EXPECT_EQ(job->state(), OutputState::kOpen);
  EXPECT_TRUE(has_token(job->allowed(), static_cast<size_t>(id_of("b"))));
  if (!job->begin(id_of("b"), true)) run_to_end(*job);
  EXPECT_EQ(job->state(), OutputState::kComplete);
}

TEST(MaskJob, SaysThatALimitWasPassed) {
  const auto job = job_of(fake_constraint("^((a{0,30}){0,30}){0,30}$", {.stacks_max = 60}));
  if (!job->begin(std::nullopt, true)) run_to_end(*job);
  for (int i = 0; i < 100 && job->state() == OutputState::kOpen; ++i) {
    if (!job->begin(id_of("a"), true)) run_to_end(*job);
  }
  EXPECT_TRUE(job->state() == OutputState::kNoMask || job->state() == OutputState::kNotAccepted);
}

TEST(MaskJob, ThatWasCancelledEnds) {
  const auto job = job_of(fake_constraint("^a[bc]$"));
  ASSERT_FALSE(job->begin(std::nullopt, true));
  job->cancel();
  EXPECT_TRUE(job->run(1));
}

// ---- MaskTurns

TEST(MaskTurns, GoToGrammarsAndNotToJobs) {
  const auto a = fake_constraint("^a$"), b = fake_constraint("^b$");
  const auto a1 = job_of(a), a2 = job_of(a), b1 = job_of(b);
  MaskTurns turns;
  turns.add(a1);
  turns.add(a2);
  turns.add(b1);
  EXPECT_EQ(turns.begin_turn(), a1);
  EXPECT_EQ(turns.begin_turn(), b1) << "while a has its turn";
  EXPECT_TRUE(turns.is_empty());
  turns.end_turn(a.get(), false);
  EXPECT_EQ(turns.begin_turn(), a1) << "not done yet";
  EXPECT_EQ(turns.next_job(a.get()), a2);
  EXPECT_EQ(turns.next_job(a.get()), nullptr);
  turns.end_turn(a.get(), false);
  EXPECT_EQ(turns.next_job(b.get()), nullptr);
  turns.add(b1);  // while b has its turn
  EXPECT_TRUE(turns.is_empty());
  turns.end_turn(b.get(), false);
  EXPECT_EQ(turns.begin_turn(), b1);
}

TEST(MaskTurns, AlternateBetweenLongAndShort) {
  std::vector<std::shared_ptr<const CompiledConstraint>> constraints;
  std::vector<std::shared_ptr<MaskJob>> jobs;
  MaskTurns turns;
  for (int i = 0; i < 4; ++i) {
    constraints.push_back(fake_constraint("^a$"));
    jobs.push_back(job_of(constraints.back()));
    turns.add(jobs.back());
  }
  const auto take = [&] {
    const auto taken = turns.begin_turn();
    return std::find(jobs.begin(), jobs.end(), taken) - jobs.begin();
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(take(), i);
  for (const size_t i : {0, 1, 2}) turns.end_turn(constraints[i].get(), true);
  EXPECT_EQ(turns.next_job(constraints[3].get()), nullptr);
  turns.end_turn(constraints[3].get(), false);
  std::vector<std::ptrdiff_t> order;
  for (int round = 0; round < 3; ++round) {
    turns.add(jobs[3]);  // a quick one comes again and again
    for (int turn = 0; turn < 2; ++turn) {
      const auto index = take();
      order.push_back(index);
      const auto& constraint = constraints[static_cast<size_t>(index)];
      if (index == 3) turns.next_job(constraint.get());
      turns.end_turn(constraint.get(), index != 3);
    }
  }
  EXPECT_THAT(order, ElementsAre(3, 0, 3, 1, 3, 2));
}

// ---- MaskThreads

TEST(MaskThreads, FinishAllJobsAndSaySo) {
  constexpr int kNumJobs = 60;
  std::vector<std::shared_ptr<MaskJob>> jobs;
  std::atomic<int> num_done = 0;
  Signal all_done;
  {
    MaskThreads threads(3, [&] {
      if (++num_done == kNumJobs) all_done.set();
    });
    for (int i = 0; i < kNumJobs; ++i) {
      jobs.push_back(job_of(fake_constraint(i % 3 == 0 ? "^(a|b|ab|ba|aab){1,90}c$" : "^a*b$")));
      if (jobs.back()->begin(std::nullopt, true)) ADD_FAILURE() << "nothing was known";
      threads.post(jobs.back());
    }
    all_done.wait();
  }
  for (const auto& job : jobs) {
    EXPECT_TRUE(job->is_done());
    EXPECT_EQ(job->state(), OutputState::kOpen);
  }
}

TEST(MaskThreads, DropWhatWaitsWhenTheyEnd) {
  const auto job = job_of(fake_constraint("^a$"));
  {
    MaskThreads threads(0, [] {});
    ASSERT_FALSE(job->begin(std::nullopt, true));
    threads.post(job);
  }
  EXPECT_FALSE(job->is_done());
  EXPECT_EQ(job.use_count(), 1);
}

}  // namespace
}  // namespace halley
