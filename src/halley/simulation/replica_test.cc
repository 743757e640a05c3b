#include "halley/simulation/replica.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/simulation/testing/plain_engine.h"

namespace halley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kNanosecond = 1.5e-9;  // times are rounded to it
constexpr double kMs = 1e-3;

std::vector<LoadOutcome> run(const SimulatedEngine& engine,
                             const std::vector<SimulatedRequest>& requests,
                             ReplicaStats* stats = nullptr) {
  std::vector<LoadOutcome> outcomes(requests.size());
  SimulationBudget budget({});
  Replica replica(engine, budget, outcomes);
  for (size_t i = 0; i < requests.size(); ++i) {
    replica.run_until(virtual_time(requests[i].arrival));
    replica.submit(i, requests[i]);
  }
  replica.run_until(TimePoint::max());
  EXPECT_EQ(replica.num_live(), 0);
  EXPECT_EQ(replica.num_waiting_tokens(), 0);
  if (stats != nullptr) *stats = replica.stats();
  return outcomes;
}

// Steps: [0, 10] computes the prompt of the first, [10, 20] its second token. The second request
// comes while the host waits for the first step, so that it is in the step that is planned at 10
// and runs in [20, 30].
TEST(Replica, PlansAStepWhenTheOneBeforeItBegins) {
  ReplicaStats stats;
  const auto outcomes = run(make_plain_engine({}),
                            {{.arrival = 0, .input_len = 4, .output_len = 3},
                             {.arrival = 5 * kMs, .input_len = 4, .output_len = 1}},
                            &stats);
  EXPECT_NEAR(outcomes[0].time_to_first_token, 10 * kMs, kNanosecond);
  ASSERT_EQ(outcomes[0].inter_token_latencies.size(), 2U);
  EXPECT_NEAR(outcomes[0].inter_token_latencies[0], 10 * kMs, kNanosecond);
  EXPECT_NEAR(outcomes[0].inter_token_latencies[1], 10 * kMs, kNanosecond);
  EXPECT_NEAR(outcomes[0].latency, 30 * kMs, kNanosecond);
  EXPECT_NEAR(outcomes[1].time_to_first_token, 25 * kMs, kNanosecond);
  EXPECT_EQ(stats.num_steps, 3);
  EXPECT_NEAR(stats.busy_seconds, 30 * kMs, kNanosecond);
}

TEST(Replica, TakesARequestThatComesAtTheEndOfAStep) {
  const auto outcomes =
      run(make_plain_engine({}), {{.arrival = 0, .input_len = 4, .output_len = 9},
                                  {.arrival = 10 * kMs, .input_len = 4, .output_len = 1}});
  EXPECT_NEAR(outcomes[1].time_to_first_token, 20 * kMs, kNanosecond);
}

TEST(Replica, IsIdleBetweenRequests) {
  ReplicaStats stats;
  const auto outcomes = run(make_plain_engine({}),
                            {{.arrival = 0, .input_len = 4, .output_len = 1},
                             {.arrival = 1, .input_len = 4, .output_len = 2}},
                            &stats);
  EXPECT_NEAR(outcomes[1].time_to_first_token, 10 * kMs, kNanosecond);
  EXPECT_NEAR(outcomes[1].latency, 20 * kMs, kNanosecond);
  EXPECT_NEAR(stats.busy_seconds, 30 * kMs, kNanosecond);
}

// 100 rows of 1 ms in chunks of 64 and 36.
TEST(Replica, ComputesLongPromptsInChunks) {
  ReplicaStats stats;
  const auto outcomes =
      run(make_plain_engine({.row_ms = 1, .max_num_seqs = 4, .max_num_batched_tokens = 64}),
          {{.arrival = 0, .input_len = 100, .output_len = 1}}, &stats);
  EXPECT_NEAR(outcomes[0].time_to_first_token, 100 * kMs, 2 * kNanosecond);
  EXPECT_EQ(stats.num_steps, 2);
}

TEST(Replica, CountsTokensByPrecision) {
  const auto outcomes = run(make_plain_engine({.step_ms = {20, 10}, .mode = PrecisionMode::kLow}),
                            {{.arrival = 0, .input_len = 4, .output_len = 3}});
  EXPECT_EQ(outcomes[0].precision_tokens, (PrecisionTokens{{"low", 3}}));
  EXPECT_THAT(outcomes[0].precisions, ElementsAre("full", "low"));
  EXPECT_THAT(outcomes[0].event_tokens,
              ElementsAre(EventTokens{0, 1, 1}, EventTokens{1, 1, 1}, EventTokens{2, 1, 1}));
  EXPECT_NEAR(outcomes[0].latency, 30 * kMs, kNanosecond);
  EXPECT_THAT(run(make_plain_engine({}), {{.input_len = 4, .output_len = 3}})[0].precision_tokens,
              IsEmpty());
}

// A step takes 20 ms in full and 10 ms in low precision: the mean must be within the objective.
TEST(Replica, GoesLowWhereFullIsTooLate) {
  const SimulatedEngine engine = make_plain_engine(
      {.step_ms = {20, 10}, .mode = PrecisionMode::kAuto, .slo = {.tpot = 15 * kMs}});
  const auto outcomes = run(engine, {{.arrival = 0, .input_len = 4, .output_len = 100}});
  const LoadOutcome& outcome = outcomes[0];
  EXPECT_GT(outcome.precision_tokens.at("low"), 10);
  EXPECT_LE((outcome.latency - outcome.time_to_first_token) / 99, 15.5 * kMs);
}

TEST(Replica, RejectsWhatAServerWouldReject) {
  const SimulatedEngine engine =
      make_plain_engine({.max_model_len = 100, .max_num_seqs = 1, .max_num_queued = 1});
  const auto outcomes = run(engine, {{.arrival = 0, .input_len = 4, .output_len = 90},
                                     {.arrival = 1 * kMs, .input_len = 90, .output_len = 11},
                                     {.arrival = 2 * kMs, .input_len = 90, .output_len = 10},
                                     {.arrival = 3 * kMs, .input_len = 1, .output_len = 1}});
  EXPECT_THAT(outcomes[0].error, IsEmpty());
  EXPECT_THAT(outcomes[1].error, HasSubstr("max_model_len: expected at most 100"));
  EXPECT_THAT(outcomes[2].error, IsEmpty());
  EXPECT_THAT(outcomes[3].error, HasSubstr("queue: expected fewer than max_num_queued=1"));
}

// Both prompts fit 16 pages, and both answers together do not.
TEST(Replica, PreemptsWhereTheCacheIsFull) {
  ReplicaStats stats;
  const auto outcomes = run(make_plain_engine({.num_pages = 16, .max_model_len = 256}),
                            {{.arrival = 0, .input_len = 100, .output_len = 100},
                             {.arrival = 0, .input_len = 100, .output_len = 100}},
                            &stats);
  EXPECT_GT(stats.num_preemptions, 0);
  EXPECT_EQ(stats.peak_kv_usage, 1);
  for (const LoadOutcome& outcome : outcomes) EXPECT_EQ(outcome.num_output_tokens, 100);
}

TEST(Replica, NeedsTwoPrecisionsForAuto) {
  const SimulatedEngine engine = make_plain_engine({.mode = PrecisionMode::kAuto});
  EXPECT_THROW(run(engine, {}), InputError);
}

}  // namespace
}  // namespace halley
