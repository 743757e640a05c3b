// An engine to be simulated: its model, its limits and how long its steps take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/core/precision.h"
#include "halley/engine/engine_plan.h"
#include "halley/models/base/precision_level.h"
#include "halley/models/base/step_cost.h"
#include "halley/simulation/step_ratios.h"

namespace halley {

struct SimulatedEngine {
  EnginePlan plan;                     // as of an engine on a device; prefixes are not shared
  std::vector<PrecisionLevel> levels;  // at least one, the best first
  std::vector<StepRatio> ratios;       // by level
  DeviceRates rates;

  /// The levels that a planner may choose from: none for a model in one precision.
  std::vector<PrecisionLevel> choices() const {
    return levels.size() > 1 ? levels : std::vector<PrecisionLevel>{};
  }

  /// The time of a step with at least one row.
  double step_seconds(size_t level, std::span<const SequenceStep> sequences,
                      int64_t num_logit_rows) const {
    int64_t num_rows = 0;
    for (const SequenceStep& sequence : sequences) num_rows += sequence.num_new;
    const DecoderCost& cost = levels.at(level).cost;
    return floor_seconds(step_cost(cost, sequences, num_logit_rows), cost.linear_type, rates) *
           ratios.at(level).at(num_rows);
  }
};

}  // namespace halley
