// The reports of `halley simulate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halley/client/load/load_report.h"
#include "halley/json/json.h"
#include "halley/precision/precision_policy.h"
#include "halley/simulation/simulated_engine.h"
#include "halley/simulation/simulation.h"

namespace halley::cli {

/// A simulation and what a replay would report of it.
struct SimulatedRun {
  PrecisionMode mode = PrecisionMode::kFull;
  SimulationResult result;
  LoadReport report;
  KeptSeconds seconds = {};
  std::optional<bool> meets_goal = {};  // of --find-num-gpus
};

/// Adds to the report of a replay: GPUs, KV cache, time in each precision. In the rows of
/// format_load_report().
std::string format_simulation(const SimulatedRun& run, const SimulatedEngine& engine);

/// A row for each run.
std::string format_comparison(const std::vector<SimulatedRun>& runs);

/// The member "simulation" of a result file.
OrderedJson simulation_json(const SimulatedRun& run, const SimulatedEngine& engine);

}  // namespace halley::cli
