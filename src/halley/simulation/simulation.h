// Simulates requests on replicas of an engine, without a GPU and without weights.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "halley/client/load/load_run.h"
#include "halley/simulation/replica.h"
#include "halley/simulation/simulated_engine.h"
#include "halley/slo/slo.h"

namespace halley {

/// The outcomes that a replay of the same requests would measure, and sums over the replicas.
struct SimulationResult {
  LoadResult load;
  ReplicaStats stats;  // last_switches and reason are empty; peak_kv_usage is the largest
  int64_t num_replicas = 0;

  /// The part of the devices' busy time that steps at the best level took; nothing for a model in
  /// one precision.
  std::optional<double> share_of_time_in_full() const;
};

/// Each request goes to the replica with the fewest prompt tokens that wait, then with the fewest
/// requests. `requests` are in order of arrival. The same arguments give the same result. Throws
/// InputError where a limit is passed, and as StepPlanner.
SimulationResult simulate(const SimulatedEngine& engine, std::span<const SimulatedRequest> requests,
                          int64_t num_replicas, const SimulationLimits& limits = {});

/// Whether the request, its answer included, is longer than the engine's sequences may be: every
/// replica rejects it.
bool is_too_long(const SimulatedEngine& engine, const SimulatedRequest& request);

/// Seconds in which the 90th percentiles keep the objectives and no request is rejected, but for
/// those that are too long.
struct KeptSeconds {
  int64_t kept = 0, of = 0;
};

/// `num_seconds`: the first ones are looked at; 0: all.
KeptSeconds kept_seconds(const SimulatedEngine& engine, std::span<const SimulatedRequest> requests,
                         const SimulationResult& result, const Slo& slo, int64_t num_seconds);

struct SizingGoal {
  Slo slo;
  double share = 1;         // of the seconds that must be kept, above 0, at most 1
  int64_t num_seconds = 0;  // that count, from the first; 0: all
  int64_t num_replicas_max = 64;
};

struct Sizing {
  bool is_met = false;
  SimulationResult result;  // with the smallest number of replicas that meets the goal, else with
                            // the largest one
};

/// Tries 1, 2, 3, ... replicas; the limits are those of all tries. Throws as simulate().
Sizing find_num_replicas(const SimulatedEngine& engine, std::span<const SimulatedRequest> requests,
                         const SizingGoal& goal, const SimulationLimits& limits = {});

}  // namespace halley
