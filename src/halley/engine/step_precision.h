// Which precision the engine's next step runs in, and which of the running sequences are in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "halley/engine/precision_stats.h"
#include "halley/engine/request_times.h"
#include "halley/engine/scheduler.h"
#include "halley/models/base/precision_level.h"
#include "halley/models/base/step_cost.h"
#include "halley/precision/precision_policy.h"
#include "halley/precision/step_predictor.h"
#include "halley/slo/slo.h"

namespace halley {

/// The precision and the latencies that a request asks for.
struct PrecisionDemand {
  PrecisionMode mode = PrecisionMode::kFull;
  Slo slo = {};
  TimePoint submitted = {};
  std::optional<TimePoint> last_token = {};
  /// Seconds by which tokens came earlier than their TPOT allows, at most one TPOT, and half of one
  /// at the first token: a step may take longer by so much.
  double slack = 0;

  void note_token(TimePoint now);
};

struct StepDecision {
  size_t level = 0;
  StepScope scope = StepScope::kAll;
  PrecisionReason reason = PrecisionReason::kFixed;
};

/// Chooses by what it is told alone: it has no thread and no clock. Not thread-safe.
///
/// While a step of all sequences in the best precision keeps every SLO, all are in the same steps.
/// Where it does not, those that demand the best precision are left out of the lower steps, and
/// have a step of their own after each kPinnedTurn of those: so each of their tokens waits for that
/// many other steps.
class StepPrecision {
 public:
  static constexpr int kPinnedTurn = 4;

  /// `levels`: of the model, the best first; with fewer than two there is nothing to choose.
  /// Throws InputError where `mode`, of requests by default, needs more.
  StepPrecision(std::vector<PrecisionLevel> levels, PrecisionMode mode);

  bool has_choice() const { return levels_.size() > 1; }
  /// Nothing for a model in one precision.
  std::optional<Precision> precision_of(size_t level) const;

  using DemandOf = std::function<const PrecisionDemand&(SequenceId id)>;
  using PrefillRowsOf = std::function<int64_t(size_t level)>;  // of a step, at most
  /// `start`: when the step can begin, after those in flight.
  StepDecision choose(const StepOutline& outline, const PrefillRowsOf& num_prefill_rows_of,
                      const DemandOf& demand_of, TimePoint now, TimePoint start);

  /// A step in flight.
  struct Launched {
    size_t level = 0;
    int64_t num_rows = 0;
    double floor_seconds = 0;
    std::optional<double> predicted_seconds = {};
    bool is_switched = false;  // the step before it ran in another precision
  };
  /// To be called for every plan by a decision, with or without sequences, and with what the former
  /// have returned when their steps have ended.
  Launched note_launch(const StepPlan& plan, const StepDecision& decision, TimePoint now);
  void note_empty(const StepDecision& decision);
  void note_end(const Launched& step, double seconds);
  void note_token(size_t level) {
    if (has_choice()) ++stats_.levels.at(level).num_tokens;
  }
  /// Counts the limits that a request which has ended was promised and did not get.
  void note_objectives(const Slo& slo, const RequestTimes& times);

  /// Learns from a step of its own.
  void learn(size_t level, std::span<const SequenceStep> sequences, double seconds);

  /// Counts of the levels, and where they were changed.
  const PrecisionStats& stats() const { return stats_; }

 private:
  /// The kinds of sequences that an outline has.
  struct Kinds {
    bool has_pinned = false, has_others = false;  // that can run
    bool is_all_low = true;                       // all others ask for the lowest precision
  };

  Kinds kinds_of(const StepOutline& outline, const DemandOf& demand_of) const;
  double floor_of(size_t level, std::span<const SequenceStep> sequences) const;
  std::optional<StepEstimate> predict(size_t level, std::span<const SequenceStep> sequences) const;
  bool add_estimates(const StepOutline& outline, const PrefillRowsOf& num_prefill_rows_of,
                     StepOutlook& outlook) const;
  StepOutlook outlook_of(const StepOutline& outline, const PrefillRowsOf& num_prefill_rows_of,
                         const DemandOf& demand_of, TimePoint now, TimePoint start) const;
  void note_level(const StepDecision& decision, TimePoint now);

  const std::vector<PrecisionLevel> levels_;
  StepPredictor predictor_;
  PrecisionPolicy policy_;
  int num_low_steps_ = 0;                  // since pinned sequences that could run had rows
  std::optional<size_t> last_level_ = {};  // of the step launched last
  PrecisionStats stats_;
};

}  // namespace halley
