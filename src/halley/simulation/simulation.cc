#include "halley/simulation/simulation.h"

#include <algorithm>
#include <memory>
#include <tuple>

#include "halley/base/check.h"
#include "halley/base/checked_math.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/client/load/load_series.h"

namespace halley {
namespace {

void check_requests(std::span<const SimulatedRequest> requests, const SimulationLimits& limits) {
  const auto num_requests = static_cast<int64_t>(requests.size());
  if (num_requests > limits.num_requests) {
    throw InputError(str("simulation: expected at most ", limits.num_requests, " requests, got ",
                         num_requests, ". Choose a shorter window of the load."));
  }
  int64_t num_tokens = 0;
  double last = 0;
  for (const SimulatedRequest& request : requests) {
    HALLEY_CHECK(request.input_len >= 1 && request.output_len >= 1, request.input_len,
                 request.output_len);
    HALLEY_CHECK(request.arrival >= last, request.arrival, last);
    last = request.arrival;
    num_tokens = checked_add(num_tokens, request.output_len).value_or(limits.num_output_tokens + 1);
    if (num_tokens > limits.num_output_tokens) {
      throw InputError(str("simulation: expected at most ", limits.num_output_tokens,
                           " output tokens of all requests, got more. Choose a shorter window of "
                           "the load, or shorten its answers."));
    }
  }
  if (last > limits.seconds) {
    throw InputError(str("simulation: expected arrivals within ", limits.seconds, " seconds, got ",
                         last, ". Choose a shorter window of the load."));
  }
}

void add_levels(const std::vector<LevelStats>& levels, std::vector<LevelStats>& sums) {
  for (size_t i = 0; i < levels.size(); ++i) {
    if (i == sums.size()) sums.push_back({.name = levels[i].name});
    LevelStats& sum = sums[i];
    sum.num_steps += levels[i].num_steps;
    sum.num_tokens += levels[i].num_tokens;
    sum.seconds += levels[i].seconds;
    for (const auto part : {&LevelStats::predicted, &LevelStats::switched}) {
      (sum.*part).add((levels[i].*part).predicted_seconds, (levels[i].*part).measured_seconds);
    }
  }
}

void add_stats(const ReplicaStats& stats, ReplicaStats& sum) {
  sum.num_steps += stats.num_steps;
  sum.num_preemptions += stats.num_preemptions;
  sum.busy_seconds += stats.busy_seconds;
  sum.peak_kv_usage = std::max(sum.peak_kv_usage, stats.peak_kv_usage);
  sum.precision.num_switches += stats.precision.num_switches;
  add_levels(stats.precision.levels, sum.precision.levels);
}

SimulationResult run(const SimulatedEngine& engine, std::span<const SimulatedRequest> requests,
                     int64_t num_replicas, SimulationBudget& budget) {
  HALLEY_CHECK(num_replicas >= 1, num_replicas);
  SimulationResult result;
  result.num_replicas = num_replicas;
  std::vector<LoadOutcome>& outcomes = result.load.outcomes;
  outcomes.resize(requests.size());
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int64_t i = 0; i < num_replicas; ++i) {
    replicas.push_back(std::make_unique<Replica>(engine, budget, outcomes));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    for (auto& replica : replicas) replica->run_until(virtual_time(requests[i].arrival));
    const auto chosen =
        std::min_element(replicas.begin(), replicas.end(), [](const auto& a, const auto& b) {
          return std::tuple(a->num_waiting_tokens(), a->num_live()) <
                 std::tuple(b->num_waiting_tokens(), b->num_live());
        });
    (*chosen)->submit(i, requests[i]);
  }
  for (auto& replica : replicas) {
    replica->run_until(TimePoint::max());
    HALLEY_CHECK(replica->num_live() == 0, replica->num_live());
    add_stats(replica->stats(), result.stats);
  }
  for (const LoadOutcome& outcome : outcomes) {
    result.load.duration = std::max(result.load.duration, outcome.start + outcome.latency);
  }
  return result;
}

}  // namespace

std::optional<double> SimulationResult::share_of_time_in_full() const {
  const std::vector<LevelStats>& levels = stats.precision.levels;
  if (levels.size() < 2) return std::nullopt;
  double sum = 0;
  for (const LevelStats& level : levels) sum += level.seconds;
  return sum > 0 ? levels.front().seconds / sum : 1;
}

SimulationResult simulate(const SimulatedEngine& engine, std::span<const SimulatedRequest> requests,
                          int64_t num_replicas, const SimulationLimits& limits) {
  check_requests(requests, limits);
  SimulationBudget budget(limits);
  return run(engine, requests, num_replicas, budget);
}

bool is_too_long(const SimulatedEngine& engine, const SimulatedRequest& request) {
  return request.input_len > engine.plan.config.max_model_len - request.output_len;
}

KeptSeconds kept_seconds(const SimulatedEngine& engine, std::span<const SimulatedRequest> requests,
                         const SimulationResult& result, const Slo& slo, int64_t num_seconds) {
  const std::vector<LoadOutcome>& outcomes = result.load.outcomes;
  HALLEY_CHECK(outcomes.size() == requests.size(), outcomes.size(), requests.size());
  const std::vector<LoadSecond> series = make_load_series(outcomes);
  std::vector<bool> is_kept;
  for (const LoadSecond& second : series) {
    const SecondViolation violation = violation_of(second, slo);
    is_kept.push_back(!violation.ttft && !violation.tpot);
  }
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].error.empty() || is_too_long(engine, requests[i])) continue;
    is_kept.at(static_cast<size_t>(outcomes[i].start)) = false;
  }
  const auto num_all = static_cast<int64_t>(is_kept.size());
  const int64_t num_counted = num_seconds > 0 ? num_seconds : num_all;
  const int64_t num_in_run = std::min(num_counted, num_all);
  // Nothing happens in seconds behind the last one.
  return {.kept = std::count(is_kept.begin(), is_kept.begin() + num_in_run, true) +
                  (num_counted - num_in_run),
          .of = num_counted};
}

Sizing find_num_replicas(const SimulatedEngine& engine, std::span<const SimulatedRequest> requests,
                         const SizingGoal& goal, const SimulationLimits& limits) {
  HALLEY_CHECK(goal.num_replicas_max >= 1, goal.num_replicas_max);
  check_requests(requests, limits);
  SimulationBudget budget(limits);
  Sizing sizing;
  for (int64_t n = 1; n <= goal.num_replicas_max && !sizing.is_met; ++n) {
    sizing.result = run(engine, requests, n, budget);
    const KeptSeconds seconds =
        kept_seconds(engine, requests, sizing.result, goal.slo, goal.num_seconds);
    sizing.is_met =
        static_cast<double>(seconds.kept) >= goal.share * static_cast<double>(seconds.of);
  }
  return sizing;
}

}  // namespace halley
