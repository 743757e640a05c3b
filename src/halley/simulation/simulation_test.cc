#include "halley/simulation/simulation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/client/load/load_series.h"
#include "halley/simulation/testing/plain_engine.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kMs = 1e-3;

double uniform(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

// `seconds` of requests whose rate swings from 1 to `rate_max` in every period.
std::vector<SimulatedRequest> bursts(uint64_t seed, double seconds, double rate_max) {
  std::mt19937_64 random(seed);
  const double period = uniform(random, 3, 10);
  std::vector<SimulatedRequest> requests;
  for (double time = 0; time < seconds;) {
    requests.push_back({.arrival = time,
                        .input_len = static_cast<int64_t>(uniform(random, 1, 800)),
                        .output_len = static_cast<int64_t>(uniform(random, 1, 150))});
    const double phase = std::sin(M_PI * time / period);
    const double rate = 1 + (rate_max - 1) * phase * phase;
    time += std::exponential_distribution<double>(rate)(random);
  }
  return requests;
}

SimulatedEngine two_precisions(PrecisionMode mode, int64_t num_pages = 100'000) {
  return make_plain_engine({.step_ms = {20, 12},
                            .row_ms = 0.1,
                            .num_pages = num_pages,
                            .mode = mode,
                            .slo = {.ttft = 200 * kMs, .tpot = 33.3 * kMs}});
}

int64_t sum_of_tokens(const SimulationResult& result) {
  int64_t sum = 0;
  for (const LoadOutcome& outcome : result.load.outcomes) sum += outcome.num_output_tokens;
  return sum;
}

TEST(Simulation, EndsEveryRequestWithAllItsTokens) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto requests = bursts(seed, 10, 30);
    const auto mode = static_cast<PrecisionMode>(seed % 3);
    // Few pages: sequences are preempted.
    const SimulatedEngine engine = two_precisions(mode, seed % 2 == 0 ? 150 : 100'000);
    const SimulationResult result = simulate(engine, requests, 1 + static_cast<int64_t>(seed % 4));
    int64_t num_tokens = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const LoadOutcome& outcome = result.load.outcomes[i];
      ASSERT_EQ(outcome.error, "") << seed;
      ASSERT_EQ(outcome.num_output_tokens, requests[i].output_len) << seed;
      ASSERT_EQ(outcome.num_prompt_tokens, requests[i].input_len) << seed;
      ASSERT_EQ(outcome.start, requests[i].arrival) << seed;
      const double last =
          std::accumulate(outcome.inter_token_latencies.begin(),
                          outcome.inter_token_latencies.end(), outcome.time_to_first_token);
      ASSERT_NEAR(last, outcome.latency, 1e-6) << seed;
      ASSERT_EQ(outcome.event_tokens.size(), static_cast<size_t>(requests[i].output_len)) << seed;
      for (const auto& [name, count] : outcome.precision_tokens) num_tokens += count;
    }
    ASSERT_EQ(num_tokens, sum_of_tokens(result)) << seed;
    int64_t num_steps = 0, num_level_tokens = 0;
    for (const LevelStats& level : result.stats.precision.levels) {
      num_steps += level.num_steps;
      num_level_tokens += level.num_tokens;
    }
    ASSERT_EQ(num_steps, result.stats.num_steps) << seed;
    ASSERT_EQ(num_level_tokens, num_tokens) << seed;
    if (seed % 4 == 0) {
      ASSERT_GT(result.stats.num_preemptions, 0) << seed;
    }
  }
}

TEST(Simulation, RequestsThatDemandFullNeverGetALowToken) {
  const auto requests = bursts(1, 10, 60);
  const SimulationResult full = simulate(two_precisions(PrecisionMode::kFull), requests, 1);
  EXPECT_EQ(full.stats.precision.levels.at(1).num_steps, 0);
  EXPECT_EQ(full.share_of_time_in_full(), 1);
  const SimulationResult low = simulate(two_precisions(PrecisionMode::kLow), requests, 1);
  EXPECT_EQ(low.stats.precision.levels.at(0).num_steps, 0);
  EXPECT_EQ(low.share_of_time_in_full(), 0);
}

TEST(Simulation, EqualArgumentsGiveEqualResults) {
  const auto requests = bursts(7, 10, 40);
  const SimulatedEngine engine = two_precisions(PrecisionMode::kAuto);
  const SimulationResult a = simulate(engine, requests, 2), b = simulate(engine, requests, 2);
  EXPECT_EQ(a.load.duration, b.load.duration);
  EXPECT_EQ(a.stats.num_steps, b.stats.num_steps);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(a.load.outcomes[i].inter_token_latencies, b.load.outcomes[i].inter_token_latencies);
    EXPECT_EQ(a.load.outcomes[i].precision_tokens, b.load.outcomes[i].precision_tokens);
  }
}

// By the first tokens: decodes share steps with prompts, whose size the planner has to learn.
int64_t num_late_seconds(PrecisionMode mode, const std::vector<SimulatedRequest>& requests) {
  const SimulatedEngine engine = two_precisions(mode);
  const KeptSeconds seconds = kept_seconds(engine, requests, simulate(engine, requests, 1),
                                           {.ttft = engine.plan.config.slo.ttft}, 0);
  return seconds.of - seconds.kept;
}

// Loads that low precision holds and full precision does not: on average at most one second is late
// that low precision would have held.
TEST(Simulation, AutoHoldsWhatLowHolds) {
  int64_t num_loads = 0, sum_low = 0, sum_auto = 0, sum_full = 0;
  for (uint64_t seed = 100; seed < 130; ++seed) {
    const auto requests = bursts(seed, 20, 20);
    const int64_t low = num_late_seconds(PrecisionMode::kLow, requests);
    const int64_t full = num_late_seconds(PrecisionMode::kFull, requests);
    if (low > 1 || full <= low + 1) continue;
    ++num_loads;
    const int64_t chosen = num_late_seconds(PrecisionMode::kAuto, requests);
    EXPECT_LT(chosen, full) << seed;
    sum_low += low;
    sum_auto += chosen;
    sum_full += full;
  }
  EXPECT_GE(num_loads, 10);
  EXPECT_LE(sum_auto, sum_low + num_loads);
  EXPECT_LT(4 * sum_auto, sum_full);
}

TEST(Simulation, AutoIsFullWhereThatHolds) {
  const auto requests = bursts(3, 20, 2);
  const SimulationResult result = simulate(two_precisions(PrecisionMode::kAuto), requests, 1);
  EXPECT_GT(result.share_of_time_in_full(), 0.9);
}

TEST(Simulation, AModelInOnePrecisionHasNoShares) {
  const SimulationResult result =
      simulate(make_plain_engine({}), std::vector<SimulatedRequest>{{0, 4, 1}}, 1);
  EXPECT_FALSE(result.share_of_time_in_full());
  EXPECT_EQ(result.stats.num_steps, 1);
}

// Two replicas, each with half of the requests.
TEST(Simulation, DealsRequestsToTheReplicaThatWaitsLeast) {
  const SimulatedEngine engine = make_plain_engine({.row_ms = 1});
  const std::vector<SimulatedRequest> requests = {{0, 100, 1}, {0, 30, 1}, {0, 30, 1}, {0, 30, 1}};
  const SimulationResult result = simulate(engine, requests, 2);
  // The three short ones together are shorter than the long one.
  EXPECT_NEAR(result.load.outcomes[0].latency, 100 * kMs, 1e-8);
  for (size_t i = 1; i < 4; ++i) EXPECT_NEAR(result.load.outcomes[i].latency, 90 * kMs, 1e-8);
}

TEST(Simulation, CountsSecondsThatKeepTheObjectives) {
  const SimulatedEngine engine =
      make_plain_engine({.max_model_len = 100, .max_num_seqs = 1, .max_num_queued = 1});
  // The third is rejected in second 2, the last one is too long.
  const std::vector<SimulatedRequest> requests = {
      {0, 4, 1}, {2, 4, 90}, {2.01, 4, 90}, {2.02, 4, 1}, {4, 99, 99}};
  const SimulationResult result = simulate(engine, requests, 1);
  EXPECT_TRUE(is_too_long(engine, requests[4]));
  EXPECT_FALSE(is_too_long(engine, requests[3]));
  const auto count = [&](const Slo& slo, int64_t num_seconds) {
    return kept_seconds(engine, requests, result, slo, num_seconds);
  };
  EXPECT_EQ(count({}, 0).of, 5);
  EXPECT_EQ(count({}, 0).kept, 4);  // but for the rejection
  EXPECT_EQ(count({}, 2).of, 2);
  EXPECT_EQ(count({}, 2).kept, 2);
  EXPECT_EQ(count({}, 10).kept, 9);
  EXPECT_EQ(count({.tpot = 5 * kMs}, 0).kept, 3);  // second 3 has tokens too
  EXPECT_EQ(count({.ttft = 5 * kMs}, 1).kept, 0);
}

TEST(Sizing, FindsTheSmallestNumberThatKeepsTheObjectives) {
  const auto requests = bursts(5, 10, 60);
  SimulatedEngine engine = two_precisions(PrecisionMode::kFull);
  const SizingGoal goal = {.slo = engine.plan.config.slo, .num_seconds = 10};
  const Sizing sizing = find_num_replicas(engine, requests, goal);
  ASSERT_TRUE(sizing.is_met);
  const int64_t num_replicas = sizing.result.num_replicas;
  ASSERT_GT(num_replicas, 1);
  const auto kept_with = [&](int64_t n) {
    return kept_seconds(engine, requests, simulate(engine, requests, n), goal.slo, 10).kept;
  };
  EXPECT_EQ(kept_with(num_replicas), 10);
  EXPECT_LT(kept_with(num_replicas - 1), 10);
}

TEST(Sizing, SaysWhereNoNumberSuffices) {
  SimulatedEngine engine = make_plain_engine({});
  const std::vector<SimulatedRequest> requests = {{0, 4, 5}};
  const Sizing sizing = find_num_replicas(
      engine, requests, {.slo = {.tpot = 1 * kMs}, .num_seconds = 1, .num_replicas_max = 3});
  EXPECT_FALSE(sizing.is_met);
  EXPECT_EQ(sizing.result.num_replicas, 3);
  EXPECT_TRUE(find_num_replicas(engine, requests, {.slo = {.tpot = 1}}).is_met);
}

TEST(SimulationLimits, BoundWhatALoadMayTake) {
  const SimulatedEngine engine = make_plain_engine({});
  const std::vector<SimulatedRequest> requests = {{0, 4, 5}, {3, 4, 5}};
  const auto run = [&](const SimulationLimits& limits) { simulate(engine, requests, 1, limits); };
  EXPECT_NO_THROW(run({.num_requests = 2, .num_output_tokens = 10, .num_steps = 10, .seconds = 4}));
  EXPECT_THAT([&] { run({.num_requests = 1}); },
              ThrowsMessage<InputError>(HasSubstr("expected at most 1 requests, got 2")));
  EXPECT_THAT([&] { run({.num_output_tokens = 9}); },
              ThrowsMessage<InputError>(HasSubstr("expected at most 9 output tokens")));
  EXPECT_THAT([&] { run({.num_steps = 9}); },
              ThrowsMessage<InputError>(HasSubstr("expected at most 9 steps")));
  EXPECT_THAT([&] { run({.seconds = 2}); },
              ThrowsMessage<InputError>(HasSubstr("expected arrivals within 2 seconds")));
  EXPECT_THAT([&] { run({.seconds = 3.01}); },
              ThrowsMessage<InputError>(HasSubstr("expected an end within 3.01 seconds")));
}

TEST(SimulationLimits, HoldForAllTriesTogether) {
  const SimulatedEngine engine = make_plain_engine({});
  const std::vector<SimulatedRequest> requests = {{0, 4, 5}};
  const SizingGoal goal = {.slo = {.tpot = 1 * kMs}, .num_replicas_max = 4};
  EXPECT_THROW(find_num_replicas(engine, requests, goal, {.num_steps = 19}), InputError);
  EXPECT_NO_THROW(find_num_replicas(engine, requests, goal, {.num_steps = 20}));
}

}  // namespace
}  // namespace halley
