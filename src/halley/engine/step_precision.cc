#include "halley/engine/step_precision.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "halley/base/check.h"

namespace halley {
namespace {

// The rest is for what comes before the submit and after the token, and for prompts that arrive
// later and are computed first, since they are shorter.
constexpr double kEngineShareOfTtft = 0.75;

double seconds_of(TimePoint time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

PrecisionPolicyConfig policy_config(size_t num_levels, PrecisionMode mode) {
  // A model in several precisions chooses by what its requests ask for.
  return {.mode = num_levels > 1 ? PrecisionMode::kAuto : mode,
          .num_levels = std::max<size_t>(1, num_levels)};
}

struct Candidate {
  std::vector<SequenceStep> sequences = {};
  int64_t num_prefill_rows = 0;
};

// The step that the scheduler would plan, but for how it shares rows among prefills.
Candidate candidate_of(const StepOutline& outline, bool has_pinned, int64_t num_prefill_rows_max) {
  Candidate step;
  const auto is_in = [&](const StepOutline::Part& part) {
    return part.can_run && (has_pinned || !part.is_pinned);
  };
  for (const StepOutline::Part& part : outline.decodes) {
    if (is_in(part)) step.sequences.push_back({.num_past = part.num_past, .num_new = 1});
  }
  for (const StepOutline::Part& part : outline.prefills) {
    const int64_t num_rows = std::min(part.num_left, num_prefill_rows_max - step.num_prefill_rows);
    if (!is_in(part) || num_rows <= 0) continue;
    step.sequences.push_back({.num_past = part.num_past, .num_new = num_rows});
    step.num_prefill_rows += num_rows;
  }
  return step;
}

int64_t num_rows_of(std::span<const SequenceStep> sequences) {
  int64_t num_rows = 0;
  for (const SequenceStep& sequence : sequences) num_rows += sequence.num_new;
  return num_rows;
}

}  // namespace

void PrecisionDemand::note_token(TimePoint now) {
  if (last_token) {
    const double seconds = std::chrono::duration<double>(now - *last_token).count();
    slack = std::clamp(slack + slo.tpot.value_or(0) - seconds, 0.0, slo.tpot.value_or(0));
  } else {
    slack = slo.tpot.value_or(0) / 2;
  }
  last_token = now;
}

StepPrecision::StepPrecision(std::vector<PrecisionLevel> levels, PrecisionMode mode)
    : levels_(std::move(levels)),
      predictor_(std::max<size_t>(1, levels_.size())),
      policy_(policy_config(levels_.size(), mode)) {
  for (const PrecisionLevel& level : levels_) stats_.levels.push_back({.name = level.name});
}

std::optional<Precision> StepPrecision::precision_of(size_t level) const {
  if (!has_choice()) return std::nullopt;
  return levels_.at(level).precision;
}

double StepPrecision::floor_of(size_t level, std::span<const SequenceStep> sequences) const {
  const DecoderCost& cost = levels_.at(level).cost;
  const StepCost step = step_cost(cost, sequences, static_cast<int64_t>(sequences.size()));
  // The rates of another device than this one's: what is learnt are ratios to them.
  return floor_seconds(step, cost.linear_type, kH200Rates);
}

std::optional<StepEstimate> StepPrecision::predict(size_t level,
                                                   std::span<const SequenceStep> sequences) const {
  return predictor_.predict(level, num_rows_of(sequences), floor_of(level, sequences));
}

void StepPrecision::learn(size_t level, std::span<const SequenceStep> sequences, double seconds) {
  predictor_.learn(level, num_rows_of(sequences), floor_of(level, sequences), seconds);
}

StepPrecision::Kinds StepPrecision::kinds_of(const StepOutline& outline,
                                             const DemandOf& demand_of) const {
  Kinds kinds;
  for (const auto* parts : {&outline.decodes, &outline.prefills}) {
    for (const StepOutline::Part& part : *parts) {
      if (!part.can_run) continue;
      (part.is_pinned ? kinds.has_pinned : kinds.has_others) = true;
      if (!part.is_pinned && demand_of(part.id).mode != PrecisionMode::kLow) {
        kinds.is_all_low = false;
      }
    }
  }
  return kinds;
}

// Returns whether the step's time is known at every level.
bool StepPrecision::add_estimates(const StepOutline& outline,
                                  const PrefillRowsOf& num_prefill_rows_of,
                                  StepOutlook& outlook) const {
  for (size_t level = 0; level < levels_.size(); ++level) {
    const Candidate step =
        candidate_of(outline, /*has_pinned=*/level == 0, num_prefill_rows_of(level));
    if (step.sequences.empty()) return false;
    const std::optional<StepEstimate> estimate = predict(level, step.sequences);
    if (!estimate) return false;
    outlook.step.push_back(*estimate);
    const auto num_rows = static_cast<double>(std::max<int64_t>(1, step.num_prefill_rows));
    outlook.prompt_token_seconds.push_back(estimate->seconds / num_rows);
  }
  return true;
}

StepOutlook StepPrecision::outlook_of(const StepOutline& outline,
                                      const PrefillRowsOf& num_prefill_rows_of,
                                      const DemandOf& demand_of, TimePoint now,
                                      TimePoint start) const {
  StepOutlook outlook = {.now = seconds_of(now), .start = seconds_of(start), .step = {}};
  if (!add_estimates(outline, num_prefill_rows_of, outlook)) {
    outlook.step.clear();
    return outlook;
  }
  // Lower precision does not serve pinned sequences.
  for (const StepOutline::Part& part : outline.decodes) {
    if (part.is_pinned) continue;
    const PrecisionDemand& demand = demand_of(part.id);
    if (!demand.slo.tpot || !demand.last_token) continue;
    const double due = seconds_of(*demand.last_token) + demand.slack +
                       static_cast<double>(1 + part.num_unknown) * *demand.slo.tpot;
    outlook.token_due = std::min(outlook.token_due.value_or(due), due);
  }
  int64_t num_ahead = 0;
  for (const StepOutline::Part& part : outline.prefills) {
    if (part.is_pinned) continue;
    num_ahead += part.num_left;
    const PrecisionDemand& demand = demand_of(part.id);
    if (!demand.slo.ttft || demand.last_token) continue;
    outlook.first_tokens.push_back(
        {.due = seconds_of(demand.submitted) + kEngineShareOfTtft * *demand.slo.ttft,
         .num_tokens_ahead = num_ahead});
  }
  return outlook;
}

StepDecision StepPrecision::choose(const StepOutline& outline,
                                   const PrefillRowsOf& num_prefill_rows_of,
                                   const DemandOf& demand_of, TimePoint now, TimePoint start) {
  if (!has_choice()) return {};
  const Kinds kinds = kinds_of(outline, demand_of);
  if (!kinds.has_others) return {};
  if (!kinds.has_pinned && kinds.is_all_low) {
    return {.level = levels_.size() - 1, .scope = StepScope::kUnpinned};
  }
  const PrecisionChoice choice =
      policy_.choose(outlook_of(outline, num_prefill_rows_of, demand_of, now, start));
  if (choice.level == 0) return {.reason = choice.reason};
  if (kinds.has_pinned && num_low_steps_ >= kPinnedTurn) {
    return {.scope = StepScope::kPinned, .reason = PrecisionReason::kPinned};
  }
  num_low_steps_ = kinds.has_pinned ? num_low_steps_ + 1 : 0;
  return {.level = choice.level, .scope = StepScope::kUnpinned, .reason = choice.reason};
}

void StepPrecision::note_level(const StepDecision& decision, TimePoint now) {
  stats_.reason = decision.reason;
  // A step of pinned sequences alone does not change what the others run in.
  if (decision.reason == PrecisionReason::kPinned || decision.level == stats_.level) return;
  stats_.level = decision.level;
  ++stats_.num_switches;
  std::vector<PrecisionSwitch>& last = stats_.last_switches;
  if (last.size() == PrecisionStats::kNumSwitchesMax) last.erase(last.begin());
  last.push_back({.time = now, .level = decision.level, .reason = decision.reason});
}

StepPrecision::Launched StepPrecision::note_launch(const StepPlan& plan,
                                                   const StepDecision& decision, TimePoint now) {
  if (!has_choice()) return {};
  if (decision.scope != StepScope::kUnpinned) num_low_steps_ = 0;
  const bool is_switched = last_level_ && *last_level_ != decision.level;
  last_level_ = decision.level;
  note_level(decision, now);
  std::vector<SequenceStep> sequences;
  for (const ScheduledSequence& scheduled : plan.sequences) {
    sequences.push_back({.num_past = scheduled.num_past, .num_new = scheduled.num_rows});
  }
  Launched step = {.level = decision.level,
                   .num_rows = plan.num_rows,
                   .floor_seconds = floor_of(decision.level, sequences),
                   .is_switched = is_switched};
  const auto estimate = predictor_.predict(step.level, step.num_rows, step.floor_seconds);
  if (estimate) step.predicted_seconds = estimate->seconds;
  return step;
}

// Pages, or tokens that are not known yet, were missing: the pinned sequences go first next time.
void StepPrecision::note_empty(const StepDecision& decision) {
  num_low_steps_ = decision.scope == StepScope::kUnpinned ? kPinnedTurn : 0;
}

void StepPrecision::note_end(const Launched& step, double seconds) {
  if (!has_choice()) return;
  LevelStats& level = stats_.levels.at(step.level);
  ++level.num_steps;
  level.seconds += seconds;
  if (step.predicted_seconds) {
    level.predicted.add(*step.predicted_seconds, seconds);
    if (step.is_switched) level.switched.add(*step.predicted_seconds, seconds);
  }
  predictor_.learn(step.level, step.num_rows, step.floor_seconds, seconds);
}

void StepPrecision::note_objectives(const Slo& slo, const RequestTimes& times) {
  if (slo.ttft && times.first_token && *times.first_token > *slo.ttft) {
    ++stats_.num_late_first_tokens;
  }
  if (slo.tpot && times.decode && times.num_output_tokens > 1 &&
      *times.decode / static_cast<double>(times.num_output_tokens - 1) > *slo.tpot) {
    ++stats_.num_slow_requests;
  }
}

}  // namespace halley
