// Plans the steps of an engine: their precision, how many prefill rows they may have, and their
// sequences. It has no thread, no clock and no model, so that it can be simulated.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "halley/engine/itl_target.h"
#include "halley/engine/prefill_limit.h"
#include "halley/engine/request_times.h"
#include "halley/engine/scheduler.h"
#include "halley/engine/step_precision.h"
#include "halley/engine/step_time_model.h"

namespace halley {

struct StepPlannerConfig {
  ItlTarget itl_target = {};                  // not kAutoOnHost
  std::vector<PrecisionLevel> levels = {};    // of the model
  PrecisionMode mode = PrecisionMode::kFull;  // of requests by default
};

struct PlannedStep {
  StepPlan plan;
  StepDecision decision;
};

/// Not thread-safe.
class StepPlanner {
 public:
  /// The scheduler must outlive this object. `demand_of` answers for its sequences. Throws as
  /// StepPrecision.
  StepPlanner(Scheduler& scheduler, StepPlannerConfig config, StepPrecision::DemandOf demand_of);

  /// The plan must be launched, unless it has no sequences, before the next one is made.
  PlannedStep plan(TimePoint now);
  /// To be called when the plan was launched, and for every step that ended, in order.
  void note_launch(const PlannedStep& step, TimePoint now);
  void note_end(TimePoint now);

  /// Learns from a step before the first plan: decodes, or prefills.
  void learn(size_t level, std::span<const SequenceStep> sequences, double seconds);

  StepPrecision& precision() { return precision_; }
  const StepPrecision& precision() const { return precision_; }
  /// The limit of the last step's level.
  const PrefillLimit& prefill_limit() const { return limits_[precision_.stats().level]; }

 private:
  struct Launch {
    StepPrecision::Launched step;
    StepWork work;
    TimePoint begin;
  };

  TimePoint start_of_next(TimePoint now) const;

  Scheduler& scheduler_;
  StepPrecision precision_;
  StepPrecision::DemandOf demand_of_;
  std::vector<PrefillLimit> limits_;  // by level: the same rows take different times
  std::deque<Launch> launches_;       // in flight, the oldest first
  TimePoint last_end_ = {};
};

}  // namespace halley
