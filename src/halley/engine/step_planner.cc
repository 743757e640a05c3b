#include "halley/engine/step_planner.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "halley/base/check.h"

namespace halley {

StepPlanner::StepPlanner(Scheduler& scheduler, StepPlannerConfig config,
                         StepPrecision::DemandOf demand_of)
    : scheduler_(scheduler),
      precision_(std::move(config.levels), config.mode),
      demand_of_(std::move(demand_of)),
      limits_(std::max<size_t>(1, precision_.stats().levels.size()),
              PrefillLimit(config.itl_target)) {}

PlannedStep StepPlanner::plan(TimePoint now) {
  PlannedStep step;
  if (precision_.has_choice()) {
    const StepOutline outline = scheduler_.outline();
    const PrefillOutlook outlook = {
        .num_decodes = static_cast<int64_t>(outline.decodes.size()),
        .num_past = outline.prefills.empty() ? 0 : outline.prefills.front().num_past};
    const int64_t num_rows_max =
        scheduler_.num_batched_tokens_max() - static_cast<int64_t>(outline.decodes.size());
    step.decision = precision_.choose(
        outline,
        [&](size_t level) { return std::min(num_rows_max, limits_[level].expected_rows(outlook)); },
        demand_of_, now, start_of_next(now));
  }
  PrefillLimit& limit = limits_[step.decision.level];
  step.plan = scheduler_.schedule(
      [&](const PrefillOutlook& outlook) { return limit.num_rows(outlook); }, step.decision.scope);
  if (step.plan.sequences.empty()) precision_.note_empty(step.decision);
  return step;
}

// When the steps in flight are predicted to have ended, not before now.
TimePoint StepPlanner::start_of_next(TimePoint now) const {
  TimePoint end = last_end_;
  for (const Launch& launch : launches_) {
    const std::chrono::duration<double> predicted(launch.step.predicted_seconds.value_or(0));
    end = std::max(end, launch.begin) + std::chrono::duration_cast<TimePoint::duration>(predicted);
  }
  return std::max(end, now);
}

void StepPlanner::learn(size_t level, std::span<const SequenceStep> sequences, double seconds) {
  precision_.learn(level, sequences, seconds);
  StepWork work;
  for (const SequenceStep& sequence : sequences) {
    if (sequence.num_new == 1) {
      ++work.num_decodes;
    } else {
      work.add_prefill(sequence.num_past, sequence.num_new);
    }
  }
  limits_[level].note_step(work, seconds);
  if (work.num_decodes > 0) return;
  // With one decode more so many rows would hardly take longer.
  work.num_decodes = 1;
  limits_[level].note_step(work, seconds);
}

void StepPlanner::note_launch(const PlannedStep& step, TimePoint now) {
  launches_.push_back({.step = precision_.note_launch(step.plan, step.decision, now),
                       .work = work_of(step.plan),
                       .begin = now});
}

void StepPlanner::note_end(TimePoint now) {
  HALLEY_CHECK(!launches_.empty());
  const Launch launch = launches_.front();
  launches_.pop_front();
  // A step that was launched while the one before it ran began at that one's end.
  const double seconds =
      std::chrono::duration<double>(now - std::max(launch.begin, last_end_)).count();
  last_end_ = now;
  limits_[launch.step.level].note_step(launch.work, seconds);
  precision_.note_end(launch.step, seconds);
}

}  // namespace halley
